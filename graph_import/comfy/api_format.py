"""The `prompt` object of POST /prompt as strict structs.

Shape and limits only; whether classes, links and values make sense is `validate.py`'s business.
Source: spec comfyui-api/api.md section 2, validation.md sections 1 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..errors import ImportRejected

MAX_NODES: Final = 10_000
MAX_DEPTH: Final = 64  # of nested arrays and objects
MAX_INT_BITS: Final = 1024  # longer numbers can't be shown back in an error

JsonValue = Any  # what a JSON parser gives; typed as soon as a schema says what it should be


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """`[node_id, slot]`: an input that another node's output feeds. A negative slot counts from the
    last output."""

    node_id: str
    slot: int


class BrokenLink(msgspec.Struct, frozen=True, kw_only=True):
    """A list that is no `[text, whole number]`; ComfyUI takes every list for a link."""

    value: list[JsonValue]


class Literal(msgspec.Struct, frozen=True, kw_only=True):
    """A value given in the prompt itself, out of its `__value__` wrapping."""

    value: JsonValue


InputValue = Link | BrokenLink | Literal


class PromptNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `submitted` is what the client sent, unknown keys and `_meta` included.

    `inputs` is None if the client sent none, or something that is no object.
    """

    id: str
    class_type: str
    inputs: dict[str, InputValue] | None
    submitted: dict[str, JsonValue]

    def with_literals(self, values: Mapping[str, JsonValue]) -> PromptNode:
        """This node with some literals replaced."""
        if not values:
            return self
        replaced = {name: Literal(value=value) for name, value in values.items()}
        return msgspec.structs.replace(self, inputs={**(self.inputs or {}), **replaced})

    def to_json(self) -> dict[str, JsonValue]:
        """The node as history and pictures show it: as submitted, with the present inputs."""
        if self.inputs is None:
            return self.submitted
        inputs = {name: _input_json(value) for name, value in self.inputs.items()}
        return {**self.submitted, "inputs": inputs}


class PromptGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, its nodes in the client's order."""

    nodes: dict[str, PromptNode]

    def to_json(self) -> dict[str, JsonValue]:
        """The prompt as history and pictures show it."""
        return {node_id: node.to_json() for node_id, node in self.nodes.items()}


def prompt_of(body: JsonValue) -> JsonValue:
    """The `prompt` of a request's parsed body. Raises: ImportRejected: there is none."""
    if not isinstance(body, dict) or "prompt" not in body:
        raise ImportRejected("no_prompt", "No prompt provided", "No prompt provided")
    return body["prompt"]


def parse_prompt(prompt: JsonValue) -> PromptGraph:
    """Read the `prompt` object. Raises: ImportRejected: not nodes with classes, or over a limit."""
    if not isinstance(prompt, dict):
        raise _invalid("the prompt is not an object of nodes", f"Got {type(prompt).__name__}")
    if len(prompt) > MAX_NODES:
        details = f"{len(prompt)} nodes, at most {MAX_NODES}"
        raise _invalid("the prompt has too many nodes", details)
    nodes: dict[str, PromptNode] = {}
    for node_id, node in prompt.items():
        if fault := _fault(node_id) or _fault(node):
            raise _invalid(f"a node {fault}", f"Node ID {f'#{node_id}'!a}")
        nodes[node_id] = _parse_node(node_id, node)
    return PromptGraph(nodes=nodes)


def _parse_node(node_id: str, node: JsonValue) -> PromptNode:
    if not isinstance(node, dict) or "class_type" not in node:
        raise _invalid("a node is missing the class_type property", f"Node ID '#{node_id}'")
    inputs = node.get("inputs")
    return PromptNode(
        id=node_id,
        class_type=str(node["class_type"]),
        inputs={name: _parse_input(value) for name, value in inputs.items()}
        if isinstance(inputs, dict)
        else None,
        submitted=node,
    )


def _parse_input(value: JsonValue) -> InputValue:
    if isinstance(value, dict) and "__value__" in value:
        return Literal(value=value["__value__"])
    if not isinstance(value, list):
        return Literal(value=value)
    match value:
        case [str(node_id), int(slot)]:
            return Link(node_id=node_id, slot=int(slot))
        case _:
            return BrokenLink(value=value)


def _input_json(value: InputValue) -> JsonValue:
    match value:
        case Link():
            return [value.node_id, value.slot]
        case Literal(value=list()):
            return {"__value__": value.value}  # bare, it would be a link when sent again
        case _:
            return value.value


def _fault(value: JsonValue) -> str | None:
    """What in a JSON value is over a limit. Iterative: depth is the client's choice."""
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        match item:
            case str():
                if not _is_unicode(item):
                    return "has text with half a surrogate pair"
            case int():
                if item.bit_length() > MAX_INT_BITS:
                    return f"has a number of more than {MAX_INT_BITS} bits"
            case dict() | list() if depth > MAX_DEPTH:
                return f"is nested deeper than {MAX_DEPTH}"
            case dict():
                stack.extend((part, depth + 1) for pair in item.items() for part in pair)
            case list():
                stack.extend((part, depth + 1) for part in item)
    return None


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _invalid(why: str, details: str) -> ImportRejected:
    return ImportRejected("invalid_prompt", f"Cannot execute because {why}.", details)
