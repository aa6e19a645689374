"""LoRAs on a loaded model, in place, and off again bit for bit.

What a patch changes is computed from the weights as they were loaded, never by undoing the last
change: their tensors are kept aside while patched ones stand in for them, and are put back as they
are. So a base is never read again for another LoRA, and no number of switches moves it.
Source: architecture, section 7; design notes on models, section 7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from ...graph_import.handles import ModelKey, Patch
from ...graph_import.model import Model
from ..errors import NodeFailed, PatchMatchesNothing
from ..models.lora_change import (
    Misshapen,
    changed,
    changed_bias,
    changed_share,
    is_complete,
)
from ..models.lora_file import LoraFile, LoraModule, Slot, read_lora
from ..models.patch_target import Patchable, Target
from ..models.weight_files import problem
from ..protocol import PatchCoverage

log = logging.getLogger(__name__)

MAX_NAMED_KEYS: Final = 10  # in a report, of each sort

Check = Callable[[], None]


@dataclass(slots=True, frozen=True)
class _Change:
    """What the patch with this index does to one parameter: the file's keys by slot.

    The parameter has the rows of share `share` of `num_shares` equal ones of what the file changes.
    """

    patch: int
    keys: Mapping[Slot, str]
    share: int
    num_shares: int


@dataclass(slots=True)
class _Tally:
    """What became of one file's keys."""

    applied: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Plan:
    """Which parameters the patches change, by the names in their files."""

    patches: tuple[Patch, ...]
    files: tuple[LoraFile, ...]
    tallies: tuple[_Tally, ...]
    changes: dict[str, list[_Change]] = field(default_factory=dict)


class Patches:
    """The patches on one loaded model; `current` and `coverage` say which they are.

    Used by the executor's main thread only.
    """

    def __init__(self, key: ModelKey, model: Model) -> None:
        self.current: tuple[Patch, ...] = ()
        self.coverage: tuple[PatchCoverage, ...] = ()
        self._key = key
        self._model = model
        self._known_target: Target | None = None
        self._known_parameters: dict[str, torch.nn.Parameter] = {}
        self._pristine: dict[str, torch.Tensor] = {}

    @property
    def num_bytes(self) -> int:
        """What the patched tensors hold beside the model's own."""
        if not self._pristine:
            return 0
        parameters = self._parameters()
        return sum(parameters[name].nbytes for name in self._pristine)

    def take_off(self) -> None:
        """Put back every tensor that a patch stands in for."""
        if self._pristine:
            parameters = self._parameters()
            for name, tensor in self._pristine.items():
                parameters[name].data = tensor
        self._pristine = {}
        self.current, self.coverage = (), ()

    def put_on(
        self, patches: tuple[Patch, ...], make_room: Callable[[int], None], check: Check
    ) -> None:
        """Change the model, which has no patches now; whatever is raised, it has none then either.

        Args: make_room: is told how many bytes are about to be held; check: called between tensors.
        Raises:
            ModelFileProblem: a file changed, is missing or damaged.
            PatchMatchesNothing: a file is for another model.
            NodeFailed: this model takes no patches. Whatever `make_room` and `check` raise.
        """
        plan = self._plan(patches, check)
        parameters = self._parameters()
        make_room(sum(self._changed_bytes(name, parameters[name]) for name in plan.changes))
        try:
            self._change(plan, parameters, check)
            for index in range(len(patches)):
                self._refuse_nothing(plan, index)
        except BaseException:
            self.take_off()
            raise
        self.current = patches
        self.coverage = self._describe(plan)

    @property
    def _target(self) -> Target:
        if self._known_target is None:
            if not isinstance(self._model, Patchable):
                raise NodeFailed(f"{self._key.label()} takes no patches")
            self._known_target = self._model.patch_target()
        return self._known_target

    def _parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """By name; listing them takes a third of a small switch, so it is done once."""
        if not self._known_parameters:
            self._known_parameters = dict(self._target.module.named_parameters())
        return self._known_parameters

    def _changed_bytes(self, name: str, parameter: torch.nn.Parameter) -> int:
        return parameter.numel() * self._target.held_as(name, parameter.dtype).itemsize

    def _plan(self, patches: tuple[Patch, ...], check: Check) -> _Plan:
        files: dict[str, LoraFile] = {}
        for patch in patches:
            check()
            if patch.file.path not in files:
                files[patch.file.path] = read_lora(patch.file)
        plan = _Plan(
            patches=patches,
            files=tuple(files[patch.file.path] for patch in patches),
            tallies=tuple(_Tally() for _ in patches),
        )
        names = frozenset(self._parameters())
        for index, file in enumerate(plan.files):
            plan.tallies[index].ignored.extend(file.unknown)
            for module in file.modules:
                if module.part.role is self._key.role:
                    self._plan_module(plan, index, module, names)
        planned = {change.patch for changes in plan.changes.values() for change in changes}
        for index in range(len(patches)):
            if index not in planned:
                self._refuse_nothing(plan, index)
        return plan

    def _plan_module(
        self, plan: _Plan, index: int, module: LoraModule, names: frozenset[str]
    ) -> None:
        paths = self._target.paths_of(module.part, module.path)
        weight = dict(module.keys)
        bias = {Slot.DIFF_B: weight.pop(Slot.DIFF_B)} if Slot.DIFF_B in weight else {}
        for leaf, keys in (("weight", weight), ("bias", bias)):
            changed = [f"{path}.{leaf}" for path in paths]
            is_whole = leaf == "bias" or is_complete(frozenset(keys))
            if not changed or not is_whole or not names.issuperset(changed):
                plan.tallies[index].ignored.extend(keys.values())
                continue
            for share, name in enumerate(changed if keys else ()):
                change = _Change(index, keys, share, len(changed))
                plan.changes.setdefault(name, []).append(change)

    def _change(
        self, plan: _Plan, parameters: Mapping[str, torch.nn.Parameter], check: Check
    ) -> None:
        with ExitStack() as stack:
            readers = _open(plan.files, stack)
            for name, changes in plan.changes.items():
                check()
                old = parameters[name].data
                new = start = self._target.widened(name, old)
                for change in changes:
                    new = _apply(new, change, plan, readers)
                if new is not start:
                    self._pristine[name] = old
                    parameters[name].data = self._target.narrowed(name, new, old.dtype)

    def _refuse_nothing(self, plan: _Plan, index: int) -> None:
        """Raises: PatchMatchesNothing: the file is for such a model, or for none, and fits not."""
        file, tally = plan.files[index], plan.tallies[index]
        if tally.applied or (file.modules and not file.claims(self._key.role)):
            return
        name = file.file.path.rpartition("/")[2]
        reason = "it has no key that is known"
        if file.modules:
            reason = (
                f"of its keys for a {self._key.role}, {len(tally.misshapen)} have another shape "
                f"and {len(tally.ignored)} name no module of it"
            )
        raise PatchMatchesNothing(
            f"{name} matches nothing of {self._key.label()}: {reason}",
            file=file.file.path,
            ignored=tally.ignored[:MAX_NAMED_KEYS],
            misshapen=tally.misshapen[:MAX_NAMED_KEYS],
        )

    def _describe(self, plan: _Plan) -> tuple[PatchCoverage, ...]:
        """One report per file, however often it was put on."""
        reports: dict[str, PatchCoverage] = {}
        for file, tally in zip(plan.files, plan.tallies, strict=True):
            reports[file.file.path] = PatchCoverage(
                key=self._key,
                file=file.file,
                num_applied=len(tally.applied),
                num_ignored=len(tally.ignored),
                num_misshapen=len(tally.misshapen),
                ignored=tuple(tally.ignored[:MAX_NAMED_KEYS]),
                misshapen=tuple(tally.misshapen[:MAX_NAMED_KEYS]),
            )
        return tuple(reports.values())


def _apply(
    weight: torch.Tensor, change: _Change, plan: _Plan, readers: Mapping[str, Any]
) -> torch.Tensor:
    """`weight` after one change; where that doesn't fit, `weight` itself."""
    patch, tally = plan.patches[change.patch], plan.tallies[change.patch]
    tensors = _read(patch.file.path, change.keys, readers)
    keys = change.keys.values() if change.share == 0 else ()  # each counts once
    try:
        if change.num_shares > 1:
            shares = change.share, change.num_shares
            weight = changed_share(weight, tensors, patch.strength, *shares)
        elif Slot.DIFF_B in tensors:
            weight = changed_bias(weight, tensors[Slot.DIFF_B], patch.strength)
        else:
            weight = changed(weight, tensors, patch.strength)
    except Misshapen:
        tally.misshapen.extend(keys)
    else:
        tally.applied.extend(keys)
    return weight


def _open(files: Sequence[LoraFile], stack: ExitStack) -> dict[str, Any]:
    """A reader of each file, by path; safetensors gives them no types."""
    paths = dict.fromkeys(file.file.path for file in files)
    try:
        return {
            path: stack.enter_context(safe_open(path, framework="pt", device="cpu"))
            for path in paths
        }
    except (OSError, SafetensorError) as error:
        raise problem(", ".join(paths), f"it can't be read: {error}") from error


def _read(
    path: str, keys: Mapping[Slot, str], readers: Mapping[str, Any]
) -> dict[Slot, torch.Tensor]:
    try:
        return {slot: readers[path].get_tensor(key) for slot, key in keys.items()}
    except (OSError, SafetensorError) as error:
        raise problem(path, f"it can't be read: {error}") from error
