"""Node classes that a prompt itself declares: models of users' own."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..nodes.registry import Registry
from ..nodes.user_model import DECLARATION, PREFIX, Declaration, UserModelNode
from .api_format import Literal, PromptGraph, PromptNode


def with_declared(registry: Registry, prompt: PromptGraph) -> Registry:
    """`registry` and the classes that nodes of `prompt` declare.

    A class whose declaration makes no sense, or is not the one that its name says, is left out:
    then there is no such class.
    """
    declared = {d.class_type(): d for _, d in declarations(prompt)}
    return registry.extended(map(UserModelNode, declared.values())) if declared else registry


def declarations(prompt: PromptGraph) -> Iterator[tuple[PromptNode, Declaration]]:
    """The nodes that declare a model of a user's own, with what they declare."""
    for node in prompt.nodes.values():
        if node.class_type.startswith(PREFIX):
            declaration = _declaration(node)
            if declaration is not None:
                yield node, declaration


def _declaration(node: PromptNode) -> Declaration | None:
    match (node.inputs or {}).get(DECLARATION):
        case Literal(value=str(written)):
            try:
                declaration = msgspec.json.decode(written, type=Declaration)
            except (msgspec.DecodeError, UnicodeError):
                return None
            return None if declaration.fault() else declaration
        case _:
            return None
