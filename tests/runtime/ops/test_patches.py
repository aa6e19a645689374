"""The node that a LoRA file becomes: it looks at the file and reads it once."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from kit.loras import lora_spec, write_lora
from kit.op_calls import run_op
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.runtime.errors import Cancelled, PatchMatchesNothing
from nodeloom.runtime.models.weight_files import identify
from safetensors.numpy import save_file


def identity_of(path: Path) -> dict[str, object]:
    return msgspec.structs.asdict(identify(path))


def test_it_gives_the_number_of_tensors(tmp_path: Path) -> None:
    path = write_lora(tmp_path / "lora.safetensors")
    assert run_op("patch_fetch", identity_of(path)).outputs == (len(lora_spec("lora")),)


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path = write_lora(tmp_path / "lora.safetensors")
    args = identity_of(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ModelFileProblem, match=r"lora\.safetensors.*changed"):
        run_op("patch_fetch", args)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = write_lora(tmp_path / "lora.safetensors")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelFileProblem, match=r"lora\.safetensors.*truncated"):
        run_op("patch_fetch", identity_of(path))


def test_a_file_without_a_known_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vae.safetensors"
    save_file({"decoder.conv_in.weight": np.ones(2, np.float16)}, path)
    with pytest.raises(PatchMatchesNothing, match=r"vae\.safetensors is no LoRA"):
        run_op("patch_fetch", identity_of(path))


def test_reading_can_be_cancelled(tmp_path: Path) -> None:
    path = write_lora(tmp_path / "lora.safetensors")

    def cancel() -> None:
        raise Cancelled("nobody waits")

    with pytest.raises(Cancelled):
        run_op("patch_fetch", identity_of(path), check_cancelled=cancel)
