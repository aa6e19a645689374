"""Cases of nodes.json for pictures and masks: lowered, then run op by op."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from nodeloom.graph_import.ir import NodeId
from nodeloom.graph_import.nodes import image_masks
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext
from nodeloom.runtime.ops.registry import body
from nodeloom.runtime.sampling.preview import Previews
from safetensors import safe_open

from .case import Case, Outcome, worst
from .texts_and_latents import compared, outcome_of

EXISTING: Final = frozenset(
    {
        "EmptyImage",
        "GetImageSize",
        "ImageInvert",
        "ImagePadForOutpaint",
        "ImageScale",
        "ImageScaleBy",
        "ImageScaleToTotalPixels",
        "ResizeImageMaskNode",
    }
)
LACKING: Final = frozenset({"LTXVPreprocess"})
LOADERS: Final = {"LoadImage": "load_image", "LoadImageMask": "load_image_mask"}
CLASSES: Final = EXISTING | LACKING | {cls.schema.class_type for cls in image_masks.NODES}


def cases(goldens: Path) -> Iterator[Case]:
    """Every case of the classes that ComfyUI ran without an error."""
    recorded = json.loads((goldens / "nodes.json").read_text("utf-8"))
    for case in recorded["cases"]:
        if case["node"] in CLASSES and "error" not in case:
            name = f"nodes/{case['node']}/{case['case']}"
            yield Case(name, partial(compared, goldens, recorded["inputs"], case))
        elif case["node"] in LOADERS:
            name = f"nodes/{case['node']}/{case['case']}"
            yield Case(name, partial(_loaded, goldens, case))


def _loaded(goldens: Path, case: Mapping[str, Any]) -> Outcome:
    """What a picture of the set comes in as."""
    images = goldens / "images"
    file = identify(images / case["inputs"]["image"])
    args = {"path": file.path, "size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns}
    channel = {name: value for name, value in case["inputs"].items() if name == "channel"}
    call = OpCall(
        request_id=RequestId("r"), node_id=NodeId("1"), args={**args, **channel}, hidden={}
    )
    context = OpContext(
        model=None,
        folders=Folders(input=images, output=images, temp=images, saves=images),
        check_cancelled=lambda: None,
        is_strict=False,
        previews=Previews(64, (), "cpu"),
        is_metadata_disabled=False,
    )
    (result,) = body(LOADERS[case["node"]])(context, [call])
    with safe_open(goldens / "nodes.safetensors", "pt") as tensors:
        return worst(
            [
                outcome_of(tensors, ours, recorded)
                for ours, (recorded,) in zip(result.outputs, case["outputs"], strict=True)
            ]
        )
