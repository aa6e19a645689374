"""Cases of nodes.json for pictures and masks: lowered, then run op by op."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from nodeloom.graph_import.nodes import image_masks

from .case import Case
from .texts_and_latents import compared

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
CLASSES: Final = EXISTING | {cls.schema.class_type for cls in image_masks.NODES}


def cases(goldens: Path) -> Iterator[Case]:
    """Every case of the classes that ComfyUI ran without an error."""
    recorded = json.loads((goldens / "nodes.json").read_text("utf-8"))
    for case in recorded["cases"]:
        if case["node"] in CLASSES and "error" not in case:
            name = f"nodes/{case['node']}/{case['case']}"
            yield Case(name, partial(compared, goldens, recorded["inputs"], case))
