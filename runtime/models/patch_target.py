"""What of a loaded model patches may change, and by which names files call its modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
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

    def path_of(self, part: Part, path: str) -> str | None:
        """The module that files call `path` of this part; None: it has none of that name."""
        return self.modules.get(path) if part is self.part else None

    def stored_as(self, name: str) -> torch.dtype | None:
        """What the parameter `name` is rounded to when it is changed; None: not at all."""
        return self.stored


class JointTarget:
    """The weights of a model of several parts, each with a target of its own.

    Args:
        targets: by a name without dots; it stands before the names of that part's weights.
        also: parts by another part's name for them, as files of some families call them.
    """

    def __init__(
        self, targets: Mapping[str, PatchTarget], also: Mapping[Part, Part] = MappingProxyType({})
    ) -> None:
        self.module: torch.nn.Module = torch.nn.ModuleDict(
            {name: target.module for name, target in targets.items()}
        )
        self._targets = targets
        self._also = also

    def path_of(self, part: Part, path: str) -> str | None:
        """The module that files call `path` of this part; None: no part has it."""
        meant = self._also.get(part, part)
        for name, target in self._targets.items():
            found = target.path_of(meant, path)
            if found is not None:
                return f"{name}.{found}"
        return None

    def stored_as(self, name: str) -> torch.dtype | None:
        """What the parameter `name` is rounded to when it is changed; None: not at all."""
        return self._targets[name.partition(".")[0]].stored


class Target(Protocol):
    """What patches are put on."""

    @property
    def module(self) -> torch.nn.Module:
        """Its parameters are what is changed."""

    def path_of(self, part: Part, path: str) -> str | None:
        """The module that files call `path` of this part; None: there is none."""

    def stored_as(self, name: str) -> torch.dtype | None:
        """What the parameter `name` is rounded to when it is changed; None: not at all."""


@runtime_checkable
class Patchable(Protocol):
    """A loaded model that takes patches."""

    def patch_target(self) -> Target:
        """What they change."""
        ...


def module_spellings(module: torch.nn.Module, aliases: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Every module with weights of its own by its path and by its aliases (other path, path)."""
    paths = {name.rpartition(".")[0] for name, _ in module.named_parameters()}
    spellings = {plain_path(path): path for path in paths}
    spellings.update((plain_path(other), path) for other, path in aliases if path in paths)
    return spellings
