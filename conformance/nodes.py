"""Cases of nodes.json whose classes neither take nor give what steers a denoiser."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from nodeloom.graph_import.ir import NodeId
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.ops.base import OpCall
from nodeloom.runtime.ops.registry import body
from safetensors import safe_open

from .case import Case, Outcome, worst
from .node_case import (
    Recorded,
    compared,
    context_in,
    outcome_of,
    recorded_cases,
    refused,
    steering_classes,
)

LOADERS: Final = {"LoadImage": "load_image", "LoadImageMask": "load_image_mask"}


def cases(goldens: Path) -> Iterator[Case]:
    """Every case, those that ComfyUI answered with an error among them."""
    others = steering_classes(goldens)
    for name, case in recorded_cases(goldens):
        if case["node"] not in others:
            yield Case(name, partial(run_case, goldens, case))


def run_case(goldens: Path, case: Recorded) -> Outcome:
    """How far what we give is from what was recorded in the folder `goldens`."""
    if case["node"] in LOADERS:
        return _loaded(goldens, case)
    return refused(goldens, case) if "error" in case else compared(goldens, case)


def _loaded(goldens: Path, case: Recorded) -> Outcome:
    """What a picture of the set comes in as."""
    images = goldens / "images"
    file = identify(images / case["inputs"]["image"])
    args = {"path": file.path, "size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns}
    channel = {name: value for name, value in case["inputs"].items() if name == "channel"}
    call = OpCall(
        request_id=RequestId("r"), node_id=NodeId("1"), args={**args, **channel}, hidden={}
    )
    (result,) = body(LOADERS[case["node"]])(context_in(images), [call])
    with safe_open(goldens / "nodes.safetensors", "pt") as tensors:
        return worst(
            [
                outcome_of(tensors, ours, recorded)
                for ours, (recorded,) in zip(result.outputs, case["outputs"], strict=True)
            ]
        )
