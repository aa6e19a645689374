"""Recorded exchanges of ComfyUI 0.8.0, trimmed to what tests compare (in `server/recordings`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "server" / "recordings"


def entries(name: str) -> list[dict[str, Any]]:
    """The entries of one recording, in the order that its client saw them."""
    recording = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return recording["entries"]
