"""The widgets of a node and their values, from what the file stored by position.

Which widgets there are may depend on values (dynamic combos), so both are read side by side.
Source: spec importer-rules.md, sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .interface import AUTOGROW, CONTROL, DYNAMIC_COMBO, FORCED, LOAD_3D, ClassInterface, InputSpec

LOAD_3D_BUTTONS: Final = 3
SAMPLERS: Final = frozenset({"KSampler", "KSamplerAdvanced"})
OLD_SAMPLER_PREFIX: Final = "sample_"
MAX_DYNAMIC_DEPTH: Final = 16

Stored = list[Any] | dict[str, Any] | None


@dataclass(slots=True)
class Widgets:
    """A node's inputs as its class and its values make them.

    Args:
        values: by widget, in order; None: there is neither a value nor a default.
        specs: what declares each widget.
        defaulted: widgets whose values the file doesn't have.
        sockets: names of inputs that only take links.
        groups: names of inputs that grow; theirs are `group.member`.
        branching: names of dynamic combos.
        num_stored: how many stored entries the widgets take.
    """

    values: dict[str, Any] = field(default_factory=dict)
    specs: dict[str, InputSpec] = field(default_factory=dict)
    defaulted: list[str] = field(default_factory=list)
    sockets: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    branching: set[str] = field(default_factory=set)
    num_stored: int = 0

    def declares(self, name: str) -> bool:
        """Whether the class has an input of that name."""
        if name in self.sockets or name in self.values:
            return True
        return name.split(".", 1)[0] in self.groups or name.rpartition(".")[0] in self.groups

    def is_of_other_branch(self, name: str) -> bool:
        """Whether `a.b` belongs to a choice of dynamic combo `a` that was not made."""
        return any(name.startswith(f"{combo}.") for combo in self.branching)


class _Entries:
    """The stored entries, taken one after another, or by name."""

    def __init__(self, stored: Stored, forced: Mapping[str, Any]) -> None:
        self._by_name = stored if isinstance(stored, dict) else None
        self._entries = stored if isinstance(stored, list) else []
        self.num_taken = 0
        self._forced = forced

    def take(self, name: str) -> Any:
        """The next value; None: there is none. A forced one takes its entry, too."""
        value = self._by_name.get(name) if self._by_name is not None else self._pop()
        return self._forced.get(name, value)

    def is_forced(self, name: str) -> bool:
        """Whether a widget's value comes from elsewhere."""
        return name in self._forced

    def skip(self, count: int) -> None:
        """Pass over entries that are never sent."""
        self.num_taken += count

    def _pop(self) -> Any:
        self.num_taken += 1
        found = self._entries[self.num_taken - 1 : self.num_taken]
        return found[0] if found else None


def read_widgets(
    interface: ClassInterface, stored: Stored, forced: Mapping[str, Any] | None = None
) -> Widgets:
    """The widgets of a node of that class.

    Args:
        stored: `widgets_values`.
        forced: values that come from elsewhere, by widget.
    """
    if isinstance(stored, list):
        stored = _without_forced_inputs(interface, stored)
    widgets = Widgets()
    entries = _Entries(stored, forced or {})
    _read(interface.inputs, entries, widgets, depth=0)
    widgets.num_stored = entries.num_taken
    name = widgets.values.get("sampler_name")
    if interface.class_type in SAMPLERS and isinstance(name, str):
        widgets.values["sampler_name"] = name.removeprefix(OLD_SAMPLER_PREFIX)
    return widgets


def _read(specs: Iterable[InputSpec], entries: _Entries, widgets: Widgets, depth: int) -> None:
    for spec in specs:
        if spec.type == AUTOGROW and not spec.options.get(FORCED):
            widgets.groups.add(spec.name)
            continue
        if not spec.is_widget:
            widgets.sockets.add(spec.name)
            continue
        if spec.widget_type == LOAD_3D:
            entries.skip(LOAD_3D_BUTTONS)
        value = entries.take(spec.name)
        if value is None:
            value = spec.default
            widgets.defaulted.append(spec.name)
        elif spec.options.get("multiline") and isinstance(value, int | float):
            value = value if entries.is_forced(spec.name) else str(value)
        widgets.values[spec.name], widgets.specs[spec.name] = value, spec
        entries.skip(spec.num_hidden)
        if spec.widget_type == DYNAMIC_COMBO and depth < MAX_DYNAMIC_DEPTH:
            widgets.branching.add(spec.name)
            branch = next((inputs for key, inputs in spec.branches() if key == value), ())
            _read((item.under(spec.name) for item in branch), entries, widgets, depth + 1)


def _without_forced_inputs(interface: ClassInterface, stored: list[Any]) -> list[Any]:
    """Older files kept entries of inputs that only take links: left out if the count says so."""
    if not any(spec.options.get(FORCED) for spec in interface.inputs):
        return stored
    is_forced: list[bool] = []
    for spec in interface.inputs:
        forced = bool(spec.options.get(FORCED))
        if not forced and not spec.is_widget:
            continue
        is_forced.append(forced)
        if spec.options.get(CONTROL):
            is_forced.append(False)
    if len(is_forced) != len(stored):
        return stored
    return [value for value, forced in zip(stored, is_forced, strict=True) if not forced]
