"""What ComfyUI's nodes without weights gave: the cases kept in `goldens/nodes`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

FOLDER = Path(__file__).parents[2] / "goldens" / "nodes"
IMAGES = FOLDER / "images"


@cache
def document() -> Any:
    """nodes.json."""
    return json.loads((FOLDER / "nodes.json").read_text("utf-8"))


@cache
def tensors() -> dict[str, torch.Tensor]:
    """nodes.safetensors."""
    return load_file(FOLDER / "nodes.safetensors")


def cases(node: str) -> list[Any]:
    """The cases of one node class, as pytest parameters."""
    return [case for case in document()["cases"] if case["node"] == node]


def inputs(case: Any) -> dict[str, Any]:
    """A case's inputs, tensors put in."""
    return {
        name: tensors()[f"in/{value[1:]}"] if str(value).startswith("@") else value
        for name, value in case["inputs"].items()
    }


def assert_recorded(value: Any, recorded: Any) -> None:
    """The value is the one recorded; tensors within 1e-5."""
    if "value" in recorded:
        assert value == recorded["value"]
        return
    assert list(value.shape) == recorded["shape"]
    assert value.dtype == torch.float32
    assert value.is_contiguous()
    if "constant" in recorded:
        reference = torch.full(value.shape, recorded["constant"])
    else:
        reference = tensors()[recorded["tensor"]]
        value = value.flatten()[:: recorded["sampled_every"]] if "mean" in recorded else value
    assert (value - reference).abs().max() <= 1e-5
