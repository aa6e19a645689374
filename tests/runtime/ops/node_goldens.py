"""What ComfyUI's nodes without weights gave: the cases kept in `goldens/nodes`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from nodeloom.runtime.values import Latent
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
    """A case's inputs, tensors and latents put in."""
    return {name: _given(value) for name, value in case["inputs"].items()}


def _given(value: Any) -> Any:
    if isinstance(value, list):
        return [_given(part) for part in value]
    if not str(value).startswith("@"):
        return value
    recorded = document()["inputs"][value[1:]]
    if "dict" not in recorded:
        return tensors()[recorded["tensor"]]
    fields = recorded["dict"]
    mask, numbers = fields.get("noise_mask"), fields.get("batch_index")
    return Latent(
        samples=tensors()[fields["samples"]["tensor"]],
        noise_mask=mask and tensors()[mask["tensor"]],
        batch_index=numbers and tuple(item["value"] for item in numbers["list"]),
    )


def assert_recorded(value: Any, recorded: Any, limit: float = 1e-5) -> None:
    """The value is the one recorded; tensors within `limit`."""
    if "dict" in recorded:
        assert_latent(value, recorded["dict"], limit)
        return
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
        is_thinned = "sampled_every" in recorded
        value = value.flatten()[:: recorded["sampled_every"]] if is_thinned else value
    assert (value - reference).abs().max() <= limit


def assert_latent(latent: Latent, fields: Any, limit: float) -> None:
    """What a latent carries is what was recorded, and no more."""
    assert_recorded(latent.samples, fields["samples"], limit)
    assert (latent.noise_mask is None) == ("noise_mask" not in fields)
    if latent.noise_mask is not None:
        assert_recorded(latent.noise_mask, fields["noise_mask"])
    numbers = fields.get("batch_index")
    assert latent.batch_index == (numbers and tuple(item["value"] for item in numbers["list"]))
