"""What of a loaded model patches may change, and by which names files call its modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
        scales: what weights of 8 bits are multiplied by, by the parameter's name.
        fused: what is one module in files: by its spelling those that share its rows, in order.
    """

    part: Part
    module: torch.nn.Module
    modules: Mapping[str, str]
    stored: torch.dtype | None
    scales: Mapping[str, torch.Tensor] = field(default_factory=dict)
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def paths_of(self, part: Part, path: str) -> tuple[str, ...]:
        """The module that files call `path` of this part, or those that share its rows equally.

        None where there is none of that name.
        """
        if part is not self.part:
            return ()
        return (self.modules[path],) if path in self.modules else self.fused.get(path, ())

    def widened(self, name: str, held: torch.Tensor) -> torch.Tensor:
        """What a parameter's tensor stands for before it is changed, float32."""
        wide = held.to(torch.float32)
        return wide * self.scales[name] if name in self.scales else wide

    def held_as(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """What a parameter of `dtype` is held in when it is changed.

        One of 8 bits with a scale is held in 16: under its scale it might not fit any more.
        """
        return torch.float16 if name in self.scales else dtype

    def narrowed(self, name: str, changed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A changed parameter of `dtype` as it is held."""
        rounded = changed if self.stored is None else changed.to(self.stored)
        return rounded.to(self.held_as(name, dtype))


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

    def paths_of(self, part: Part, path: str) -> tuple[str, ...]:
        """The module that files call `path` of this part, or those that share its rows equally."""
        meant = self._also.get(part, part)
        return tuple(
            f"{name}.{found}"
            for name, target in self._targets.items()
            for found in target.paths_of(meant, path)
        )

    def widened(self, name: str, held: torch.Tensor) -> torch.Tensor:
        """What a parameter's tensor stands for before it is changed, float32."""
        part, _, own = name.partition(".")
        return self._targets[part].widened(own, held)

    def held_as(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """What a parameter of `dtype` is held in when it is changed."""
        part, _, own = name.partition(".")
        return self._targets[part].held_as(own, dtype)

    def narrowed(self, name: str, changed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A changed parameter of `dtype` as it is held."""
        part, _, own = name.partition(".")
        return self._targets[part].narrowed(own, changed, dtype)


class Target(Protocol):
    """What patches are put on."""

    @property
    def module(self) -> torch.nn.Module:
        """Its parameters are what is changed."""

    def paths_of(self, part: Part, path: str) -> tuple[str, ...]:
        """The module that files call `path` of this part, or those that share its rows equally."""

    def widened(self, name: str, held: torch.Tensor) -> torch.Tensor:
        """What a parameter's tensor stands for before it is changed, float32."""

    def held_as(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """What a parameter of `dtype` is held in when it is changed."""

    def narrowed(self, name: str, changed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A changed parameter of `dtype` as it is held."""


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


def fused_spellings(
    module: torch.nn.Module, names: Iterable[tuple[str, tuple[str, ...]]]
) -> dict[str, tuple[str, ...]]:
    """What is one module in files by its name there: the paths that share its rows, if all are."""
    paths = {name.rpartition(".")[0] for name, _ in module.named_parameters()}
    return {plain_path(other): own for other, own in names if paths.issuperset(own)}
