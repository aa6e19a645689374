"""Checkpoints are recognised by the names and shapes in their headers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kit.checkpoints import SD15_ROLES
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import Role
from nodeloom.runtime.models.headers import (
    DENOISER_PREFIX,
    VAE_PREFIX,
    inspect_checkpoint,
)
from nodeloom.runtime.models.text.places import SD15_TEXT_PREFIX
from nodeloom.runtime.models.tiny import write_tiny_sd15
from safetensors.numpy import load_file, save_file

FIRST = DENOISER_PREFIX + "input_blocks.0.0.weight"
PROJ_IN = DENOISER_PREFIX + "middle_block.1.proj_in.weight"


def write(path: Path, **shapes: tuple[int, ...]) -> Path:
    save_file({name: np.zeros(shape, np.float16) for name, shape in shapes.items()}, path)
    return path


def test_the_tiny_checkpoint_is_a_whole_sd15(tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    write_tiny_sd15(path)
    info = inspect_checkpoint(path)
    assert (info.family, info.dtype, info.roles) == ("sd15", "float16", frozenset(SD15_ROLES))


@pytest.mark.parametrize(
    ("prefix", "role"), [(VAE_PREFIX, Role.VAE), (SD15_TEXT_PREFIX, Role.TEXT_ENCODER)]
)
def test_a_checkpoint_without_a_part_lacks_its_role(
    tmp_path: Path, prefix: str, role: Role
) -> None:
    path = tmp_path / "tiny.safetensors"
    write_tiny_sd15(path)
    tensors = {n: t for n, t in load_file(path).items() if not n.startswith(prefix)}
    save_file(tensors, path)
    assert inspect_checkpoint(path).roles == frozenset(SD15_ROLES) - {role}


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({FIRST: (8, 8, 3, 3), PROJ_IN: (8, 8, 1, 1)}, "an instruction checkpoint"),
        ({FIRST: (8, 4, 3, 3), PROJ_IN: (8, 8)}, "an SD2 checkpoint"),
        (
            {FIRST: (8, 4, 3, 3), DENOISER_PREFIX + "label_emb.0.0.weight": (4, 4)},
            "an SDXL checkpoint",
        ),
        ({DENOISER_PREFIX + "joint_blocks.0.weight": (4,)}, "no known family"),
        ({"lora_unet_down_blocks_0.lora_up.weight": (4, 4)}, "not a checkpoint"),
    ],
)
def test_other_files_are_refused_by_what_they_are(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], reason: str
) -> None:
    path = write(tmp_path / "other.safetensors", **shapes)
    with pytest.raises(ModelFileProblem, match=reason) as caught:
        inspect_checkpoint(path)
    assert str(path) in caught.value.message


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "integers.safetensors"
    shapes = {FIRST: (8, 4, 3, 3), PROJ_IN: (8, 8, 1, 1)}
    save_file({name: np.zeros(shape, np.int8) for name, shape in shapes.items()}, path)
    with pytest.raises(ModelFileProblem, match="stored as I8"):
        inspect_checkpoint(path)


def test_looking_at_headers_needs_no_torch() -> None:
    command = "import sys, nodeloom.runtime.models.headers; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", command], check=True, timeout=60)
