"""A LoRA's file on its way: the trigger looks at it and asks for it, the check reads it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from kit.loras import lora_spec, write_lora
from kit.op_calls import run_op
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.runtime.models.weight_files import identify

OPS = ("patch_trigger", "patch_check")


@pytest.mark.parametrize("op", OPS)
def test_it_gives_the_number_of_tensors(op: str, tmp_path: Path) -> None:
    path = write_lora(tmp_path / "lora.safetensors")
    assert run_op(op, msgspec.structs.asdict(identify(path))).outputs == (len(lora_spec("lora")),)


@pytest.mark.parametrize("op", OPS)
def test_a_file_that_changed_is_refused_by_name(op: str, tmp_path: Path) -> None:
    path = write_lora(tmp_path / "lora.safetensors")
    args = msgspec.structs.asdict(identify(path))
    os.utime(path, ns=(1, 1))
    with pytest.raises(ModelFileProblem, match=r"lora\.safetensors.*changed"):
        run_op(op, args)


@pytest.mark.parametrize("op", OPS)
def test_a_file_that_is_gone_is_refused_by_name(op: str, tmp_path: Path) -> None:
    path = write_lora(tmp_path / "lora.safetensors")
    args = msgspec.structs.asdict(identify(path))
    path.unlink()
    with pytest.raises(ModelFileProblem, match=r"lora\.safetensors"):
        run_op(op, args)
