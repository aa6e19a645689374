"""Where recorded ComfyUI numbers are: the thinned set in the checkout, and the full one beside it.

A test that takes `golden_set` (with `@each_golden_set`) runs on both; without the full set that run
is skipped, and says so.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

TESTS = Path(__file__).parents[1]
KEPT = TESTS / "goldens" / "sampling"
FULL = Path(os.environ.get("NODELOOM_GOLDENS") or TESTS.parents[1] / "shared" / "goldens")

each_golden_set = pytest.mark.parametrize("golden_set", ["kept", "full"])


def golden_folder(golden_set: str) -> Path:
    """The folder of the set called "kept" or "full"; skips the test where it is missing."""
    if golden_set == "kept":
        return KEPT
    if not FULL.is_dir():
        pytest.skip(f"the full goldens are not at {FULL}: set NODELOOM_GOLDENS")
    return FULL


def load_json(golden_set: str, name: str) -> Any:
    """The JSON file `name` of the set."""
    return json.loads((golden_folder(golden_set) / name).read_text(encoding="utf-8"))


class Tensors:
    """The safetensors file `name` of the set, read key by key."""

    def __init__(self, golden_set: str, name: str) -> None:
        self._file = safe_open(golden_folder(golden_set) / name, "pt")
        self.keys = frozenset(self._file.keys())

    def __getitem__(self, key: str) -> torch.Tensor:
        tensor: torch.Tensor = self._file.get_tensor(key)
        return tensor
