"""The node class of a model of a user's own, made from what a prompt declares about it.

A prompt that uses one carries its `Declaration`, so a stored prompt is lowered again without the
user's file. The file is looked for by name where the server lets users' code lie; what an executor
runs must have the declared content.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from ..errors import ModelFileProblem
from ..handles import IoSpec, ModelKey, ModelRef, Role, Scalar, UserClass
from ..ir import Edge, EdgeKind, ParamValue, Port
from ..types import BOOLEAN, CONDITIONING, FLOAT, IMAGE, INT, LATENT, MASK, STRING
from .base import NodeClass
from .lowering import Lowering, Value
from .op_table import USER_MODEL
from .schema import InputSpec, NodeSchema, text

CODE: Final = "user_models"  # the kind under which a catalog has Python files of users' own
PREFIX: Final = "nodeloom.UserModel."
DECLARATION: Final = "declaration"
DATA_TYPES: Final = frozenset({IMAGE, MASK, LATENT, CONDITIONING, INT, FLOAT, STRING, BOOLEAN})
MAX_PORTS: Final = 64
MIN_INT: Final = -(2**63)  # what messages carry
MAX_INT: Final = 2**64 - 1


class Declaration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's model as a prompt names it.

    Args: file: its name below the folder of users' code.
    """

    file: str
    name: str
    sha256: str
    settings: tuple[tuple[str, Scalar], ...]
    inputs: tuple[IoSpec, ...]
    outputs: tuple[IoSpec, ...]

    def fault(self) -> str | None:
        """What is wrong with the declared inputs, outputs and settings, if something is."""
        for name, value in self.settings:
            if isinstance(value, int) and not MIN_INT <= value <= MAX_INT:
                return f"setting {name!r} is too large a number"
        if max(len(self.inputs), len(self.outputs)) > MAX_PORTS:
            return f"it has more than {MAX_PORTS} inputs or outputs"
        if not self.outputs:
            return "it declares no output"
        for kind, items in (("input", self.inputs), ("output", self.outputs)):
            names = [item.name for item in items]
            for item in items:
                if item.type not in DATA_TYPES:
                    return f"{kind} {item.name!r} is of type {item.type}, not {sorted(DATA_TYPES)}"
                if names.count(item.name) > 1:
                    return f"two {kind}s are called {item.name!r}"
                if item.name == DECLARATION or not item.name.isidentifier():
                    return f"no {kind} can be called {item.name!r}"
        return None

    def to_json(self) -> str:
        """The text that a prompt carries."""
        return msgspec.json.encode(self).decode()

    def class_type(self) -> str:
        """The node class's name: equal for equal declarations only."""
        digest = hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]
        return f"{PREFIX}{self.name}.{digest}"


class UserModelNode(NodeClass):
    """Runs a model of a user's own: op `user_model`, on the model that `ModelKey.user_class` names.

    The op's arguments are the declared inputs, deferred ones over deferred edges; its outputs are
    the declared ones, in order.
    """

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self.schema = NodeSchema(
            class_type=declaration.class_type(),
            display_name=declaration.name,
            category="nodeloom",
            inputs=(text(DECLARATION), *map(input_spec, declaration.inputs)),
            outputs=tuple(Port(name=o.name, type=o.type) for o in declaration.outputs),
        )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        declared = self._declaration
        args: dict[str, Value | ParamValue] = {}
        for item in declared.inputs:
            value = node.inputs[item.name]
            if isinstance(value, Edge) and item.is_deferred:
                value = msgspec.structs.replace(value, kind=EdgeKind.DEFERRED)
            args[item.name] = value
        return node.add(USER_MODEL, args, model=self._ref(node))

    def _ref(self, node: Lowering) -> ModelRef:
        declared = self._declaration
        try:
            file = node.catalog.file(CODE, declared.file)
        except ModelFileProblem as problem:
            raise node.refusal(DECLARATION, problem.message) from problem
        except KeyError as problem:
            reason = "this server runs no models of users' own"
            raise node.refusal(DECLARATION, reason) from problem
        user_class = UserClass(
            name=declared.name,
            sha256=declared.sha256,
            settings=declared.settings,
            inputs=declared.inputs,
            outputs=declared.outputs,
        )
        key = ModelKey(role=Role.USER, family="user", file=file, dtype="", user_class=user_class)
        return ModelRef(key=key)


def input_spec(item: IoSpec) -> InputSpec:
    """A declared input as node classes have them."""
    options: dict[str, object] = {"min": MIN_INT, "max": MAX_INT} if item.type == INT else {}
    return InputSpec(name=item.name, type=item.type, options=options)
