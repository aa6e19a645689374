"""What node classes take, read off a description such as `GET /object_info` gives.

Source: spec importer-rules.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

FORCED: Final = "forceInput"
CONTROL: Final = "control_after_generate"
DYNAMIC_COMBO: Final = "COMFY_DYNAMICCOMBO_V3"
AUTOGROW: Final = "COMFY_AUTOGROW_V3"
LOAD_3D: Final = "LOAD_3D"
SEED_NAMES: Final = frozenset({"seed", "noise_seed"})
WIDGET_TYPES: Final = frozenset(
    {"INT", "FLOAT", "STRING", "BOOLEAN", "COMBO", "COLOR", "WEBCAM", "AUDIO_RECORD"}
    | {LOAD_3D, DYNAMIC_COMBO}
)
_ZEROS: Final = {"INT": 0, "FLOAT": 0.0, "STRING": "", "BOOLEAN": False}


class InputSpec(msgspec.Struct, frozen=True):
    """One declared input."""

    name: str
    type: str
    options: Mapping[str, Any]

    @property
    def widget_type(self) -> str:
        """The type that decides whether there is a widget."""
        return str(self.options.get("widgetType", self.type))

    @property
    def is_widget(self) -> bool:
        """Whether a value can be typed in."""
        return not self.options.get(FORCED) and self.widget_type in WIDGET_TYPES

    @property
    def default(self) -> Any:
        """The value of a widget that nobody touched; None: it has none."""
        if "default" in self.options:
            return self.options["default"]
        if self.widget_type == DYNAMIC_COMBO:
            return next((key for key, _ in self.branches()), None)
        if self.widget_type == "COMBO":
            return next(iter(self.choices), None)
        return _ZEROS.get(self.widget_type)

    @property
    def choices(self) -> list[Any]:
        """What a combo offers."""
        choices = self.options.get("options")
        return choices if isinstance(choices, list) else []

    @property
    def num_hidden(self) -> int:
        """Entries that are stored after the value and never sent: controls, filters, a button."""
        control = self.options.get(CONTROL)
        count = 0
        if self.widget_type in ("INT", "FLOAT"):
            count = int(bool(control))
            if CONTROL not in self.options and self.widget_type == "INT":
                count = int(self.name.rsplit(".", 1)[-1] in SEED_NAMES)
        elif self.widget_type == "COMBO" and control:
            count = 2
        remote = self.options.get("remote")
        return count + int(isinstance(remote, dict) and bool(remote.get("refresh_button")))

    def branches(self) -> Iterator[tuple[Any, tuple[InputSpec, ...]]]:
        """The keys of a dynamic combo, each with the inputs that it brings."""
        for option in self.choices:
            if isinstance(option, dict):
                inputs = option.get("inputs")
                found = _specs(inputs, {}) if isinstance(inputs, dict) else ()
                yield option.get("key"), tuple(found)

    def under(self, prefix: str) -> InputSpec:
        """The same input, named within a dynamic combo."""
        return InputSpec(f"{prefix}.{self.name}", self.type, self.options)


class ClassInterface(msgspec.Struct, frozen=True):
    """A node class: its inputs in the order of their widgets."""

    class_type: str
    display_name: str
    inputs: tuple[InputSpec, ...]


class NodeTable:
    """The classes of a server, by name."""

    def __init__(self, object_info: Mapping[str, Any]) -> None:
        self._object_info = object_info
        self._read: dict[str, ClassInterface] = {}

    def get(self, class_type: str) -> ClassInterface | None:
        """The class; None: it is not known."""
        if class_type not in self._read:
            described = self._object_info.get(class_type)
            if not isinstance(described, dict):
                return None
            self._read[class_type] = _interface(class_type, described)
        return self._read[class_type]


def _interface(class_type: str, described: Mapping[str, Any]) -> ClassInterface:
    inputs, order = described.get("input"), described.get("input_order")
    return ClassInterface(
        class_type,
        str(described.get("display_name") or class_type),
        tuple(
            _specs(
                inputs if isinstance(inputs, dict) else {},
                order if isinstance(order, dict) else {},
            )
        ),
    )


def _specs(inputs: Mapping[str, Any], order: Mapping[str, Any]) -> Iterator[InputSpec]:
    for kind in ("required", "optional"):
        declared = inputs.get(kind)
        if not isinstance(declared, dict):
            continue
        names = [name for name in order.get(kind, ()) if name in declared]
        names += [name for name in declared if name not in set(names)]
        for name in names:
            yield _spec(str(name), declared[name])


def _spec(name: str, declared: Any) -> InputSpec:
    parts = declared if isinstance(declared, list | tuple) else [declared]
    type_ = parts[0] if parts else "*"
    options = dict(parts[1]) if len(parts) > 1 and isinstance(parts[1], dict) else {}
    if isinstance(type_, list | tuple):
        options.setdefault("options", list(type_))
        type_ = "COMBO"
    return InputSpec(name, str(type_), options)
