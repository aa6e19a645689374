"""`Program`: what a workflow in Python comes to once its text has run: calls of node classes.

Values that are not known yet are inputs of the workflow. With these filled in it is a prompt like
ComfyUI's, and from there on nothing tells the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from ..errors import Place
from ..handles import Scalar
from ..types import BOOLEAN, FLOAT, IMAGE, INT, STRING

INPUT_TYPES: Final = (STRING, INT, FLOAT, BOOLEAN, IMAGE)
PICTURE_LOADER: Final = "LoadImage"


class InputRef(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The value of a workflow's input."""

    name: str


class OutputRef(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Output `slot` of a call."""

    node_id: str
    slot: int


Argument = Scalar | InputRef | OutputRef


class WorkflowInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input as callers see it; required if it has no default.

    An IMAGE is given as the name of a picture in the input folder, as LoadImage takes it.
    """

    name: str
    type: str
    place: Place
    default: Scalar | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_required(self) -> bool:
        """Whether a value must be given."""
        return self.default is msgspec.UNSET

    def describe(self) -> dict[str, Any]:
        """name, type, is_required and default, for JSON."""
        described = {"name": self.name, "type": self.type, "is_required": self.is_required}
        return described if self.is_required else {**described, "default": self.default}


class WorkflowOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A result: the pictures that node `node_id` saves."""

    name: str
    node_id: str
    place: Place


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a node class, at a line of the text."""

    node_id: str
    class_type: str
    inputs: tuple[tuple[str, Argument], ...]
    title: str
    place: Place


class StructuralUse(msgspec.Struct, frozen=True, kw_only=True):
    """An input whose value shaped the program, where it first did."""

    name: str
    value: Scalar
    place: Place


class Program(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One trace of a workflow, for one set of structural values."""

    name: str
    inputs: tuple[WorkflowInput, ...]
    outputs: tuple[WorkflowOutput, ...]
    calls: tuple[Call, ...]
    structural: tuple[StructuralUse, ...]

    def prompt(self, values: Mapping[str, Scalar]) -> dict[str, Any]:
        """The prompt in ComfyUI's API format, given a value for every input."""
        pictures = {item.name for item in self.inputs if item.type == IMAGE}
        nodes = {_loader(name): _picture_node(name, values[name]) for name in sorted(pictures)}
        for call in self.calls:
            inputs = {n: _json(given, values, pictures) for n, given in call.inputs}
            nodes[call.node_id] = {
                "class_type": call.class_type,
                "inputs": inputs,
                "_meta": {"title": call.title},
            }
        return nodes

    def input_at(self, node_id: str, name: str) -> str | None:
        """Which input of the workflow feeds input `name` of a node, if one does."""
        for item in self.inputs:
            if node_id == _loader(item.name):
                return item.name
        call = self._calls_by_id.get(node_id)
        given = None if call is None else dict(call.inputs).get(name)
        return given.name if isinstance(given, InputRef) else None

    def place_of(self, node_id: str) -> Place | None:
        """The line that a node of the prompt comes from."""
        for item in self.inputs:
            if node_id == _loader(item.name):
                return item.place
        call = self._calls_by_id.get(node_id)
        return None if call is None else call.place

    @cached_property
    def _calls_by_id(self) -> dict[str, Call]:
        return {call.node_id: call for call in self.calls}


def _loader(name: str) -> str:
    """The id of the node that loads the picture of an input."""
    return f"input-{name}"


def _picture_node(name: str, file: Scalar) -> dict[str, Any]:
    meta = {"title": f"Input {name}"}
    return {"class_type": PICTURE_LOADER, "inputs": {"image": file}, "_meta": meta}


def _json(given: Argument, values: Mapping[str, Scalar], pictures: set[str]) -> Any:
    match given:
        case OutputRef(node_id=node_id, slot=slot):
            return [node_id, slot]
        case InputRef(name=name) if name in pictures:
            return [_loader(name), 0]
        case InputRef(name=name):
            return values[name]
        case _:
            return given
