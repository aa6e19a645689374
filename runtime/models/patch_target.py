"""What of a loaded model patches may change, and by which names files call its modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from .lora_file import Part, plain_path


@dataclass(slots=True, frozen=True)
class PatchTarget:
    """The weights of a loaded model.

    Args:
        module: its parameters are what is changed.
        modules: paths of modules by every spelling (`plain_path`) that files have for them.
        stored: a dtype that changed weights are rounded to, as they were when they were loaded.
    """

    part: Part
    module: torch.nn.Module
    modules: Mapping[str, str]
    stored: torch.dtype | None


@runtime_checkable
class Patchable(Protocol):
    """A loaded model that takes patches."""

    def patch_target(self) -> PatchTarget:
        """What they change."""
        ...


def module_spellings(module: torch.nn.Module, aliases: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Every module with weights of its own by its path and by its aliases (other path, path)."""
    paths = {name.rpartition(".")[0] for name, _ in module.named_parameters()}
    spellings = {plain_path(path): path for path in paths}
    spellings.update((plain_path(other), path) for other, path in aliases if path in paths)
    return spellings
