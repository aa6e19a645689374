"""What a node class sees while it is lowered: its inputs, and how to add DAG nodes.

An input is a constant, a model handle or an edge (`values.py`). Only what shapes the DAG must be
constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from ..builder import GraphBuilder
from ..catalog import Catalog
from ..errors import GraphBroken
from ..handles import FileIdentity, ModelRef, Scalar
from ..ir import Edge, NodeId, Origin, ParamValue
from ..types import FLOAT
from .literals import Complaint, InputRefused, check_choice, check_range, convert, custom_failure
from .op_table import spec_of
from .schema import NodeSchema
from .values import (
    Absent,
    Constant,
    Control,
    EdgeList,
    Handle,
    ListValue,
    Run,
    Steering,
    Value,
    edges_of,
)

__all__ = (
    "Constant",
    "Control",
    "GraphTooLarge",
    "Handle",
    "KnownValues",
    "Lowering",
    "NeedsValue",
    "Steering",
    "Value",
    "dag_id",
    "edges_of",
)
MAX_GRAPH_NODES: Final = 20_000
MAX_GRAPH_NUMBERS: Final = 5_000_000  # floats in tuples: every node carries its own on the wire


class NeedsValue(Exception):
    """The node can't be lowered before the values on `edges` are known."""

    def __init__(self, edges: tuple[Edge, ...]) -> None:
        super().__init__(f"needs the values on {edges}")
        self.edges = edges


class GraphTooLarge(InputRefused):
    """The prompt becomes more DAG nodes, or heavier ones, than a request may have."""


class KnownValues(msgspec.Struct, frozen=True, kw_only=True):
    """Values that edges turned out to carry, by (producer, port).

    `by_content` has them by the producer's signature: a twin of a node that ran has its values too,
    although `passes/dedupe.py` left only one of them in the Graph.
    """

    by_edge: Mapping[tuple[NodeId, int], Scalar] = msgspec.field(default_factory=dict)
    by_content: Mapping[tuple[str, int], Scalar] = msgspec.field(default_factory=dict)

    def has(self, edge: Edge, signature: str) -> bool:
        """Whether the value on `edge`, whose producer has `signature`, is known."""
        return (edge.source, edge.port) in self.by_edge or (
            (signature, edge.port) in self.by_content
        )

    def value(self, edge: Edge, signature: str) -> Scalar:
        """That value. Raises: KeyError: it is not known."""
        if (edge.source, edge.port) in self.by_edge:
            return self.by_edge[edge.source, edge.port]
        return self.by_content[signature, edge.port]


def dag_id(node_id: str, part: str | None = None) -> NodeId:
    """The DAG node of a ComfyUI node, or of a part of one: `3`, `3/begin`.

    A slash in the client's id is doubled, so that no id of one can be a part of another.
    """
    whole = node_id.replace("/", "//")
    return NodeId(whole if part is None else f"{whole}/{part}")


class CallOf(msgspec.Struct, frozen=True, kw_only=True):
    """Which of a node's calls, where lists on its inputs make several."""

    index: int
    num_calls: int


@dataclass(slots=True)
class Lowering:
    """One ComfyUI node on its way into the DAG.

    `patch_edges` has the patch files of the whole prompt, each with the node that fetches it.
    `known` has values that edges turned out to carry. Only what asks for a constant looks at them;
    an edge stays an edge, so what is already lowered comes out the same when more is known.
    `call` is set where lists on the inputs make this one of several calls.
    """

    node_id: str
    schema: NodeSchema
    inputs: Mapping[str, Value]
    known: KnownValues
    catalog: Catalog
    builder: GraphBuilder
    patch_edges: dict[FileIdentity, Edge] = field(default_factory=dict)
    nodes: list[NodeId] = field(default_factory=list)
    call: CallOf | None = None

    def require(self, *names: str) -> None:
        """Ask for several constants at once.

        Raises: InputRefused: one that is known makes no sense; NeedsValue: with all edges that are
        not known yet.
        """
        unknown: list[Edge] = []
        for name in names:
            value = self.inputs[name]
            if isinstance(value, Edge) and not self._is_known(value):
                unknown.append(value)
            else:
                self._constant(name)
        if unknown:
            raise NeedsValue(tuple(unknown))

    def integer(self, name: str) -> int:
        """The constant `name`, converted and in range. Raises: NeedsValue, InputRefused."""
        return int(self._constant(name))

    def number(self, name: str) -> float:
        """The constant `name`, converted, in range and finite. Raises: NeedsValue, InputRefused."""
        value = float(self._constant(name))
        if not math.isfinite(value):
            raise self.refusal(name, f"{value} is no finite number")
        return value

    def text(self, name: str) -> str:
        """The constant `name`, one of the fixed choices. Raises: NeedsValue, InputRefused."""
        return str(self._constant(name))

    def model(self, name: str) -> ModelRef:
        """The model on `name`. Raises: InputRefused: something else is there."""
        return self.handle(name).ref

    def handle(self, name: str) -> Handle:
        """The model on `name`, with how it is guided. Raises: InputRefused: as `model`."""
        value = self.inputs[name]
        if isinstance(value, Absent):
            raise self.refusal(name, value.reason)
        if not isinstance(value, Handle):
            raise self.refusal(name, f"a {self.schema.input(name).type} was expected")
        return value

    def steering(self, name: str) -> Steering:
        """The conditioning on `name`. Raises: InputRefused: something else is there."""
        match self.inputs[name]:
            case Steering() as steering:
                return steering
            case Edge() as edge:
                return Steering(edge=edge)
            case _:
                raise self.refusal(name, "a conditioning was expected")

    def edge(self, name: str) -> Edge:
        """The edge on `name`. Raises: InputRefused: something else is there."""
        match self.inputs[name]:
            case Edge() as edge:
                return edge
            case _:
                raise self.refusal(name, f"a {self.schema.input(name).type} was expected")

    def items(self, name: str) -> tuple[Value, ...]:
        """All values on `name`, for a class with `is_input_list`."""
        value = self.inputs[name]
        items = value.items if isinstance(value, ListValue) else (value,)
        return tuple(item for item in items if not isinstance(item, EdgeList))

    def constant(self, name: str) -> Any:
        """The constant `name`, converted and in range. Raises: NeedsValue, InputRefused."""
        return self._constant(name)

    def known_or_needed(self, edge: Edge) -> Scalar:
        """The value on `edge`. Raises: NeedsValue: it is not known yet."""
        if not self._is_known(edge):
            raise NeedsValue((edge,))
        return self.known.value(edge, self.builder.signature(edge.source))

    def refusal(self, name: str, reason: str) -> InputRefused:
        """The exception that refuses input `name`."""
        return InputRefused(custom_failure(name, reason))

    def add(
        self,
        op: str,
        args: Mapping[str, Value | ParamValue],
        *,
        part: str | None = None,
        model: ModelRef | None = None,
        hidden: tuple[str, ...] = (),
        value: int = 0,
        max_value: int = 0,
    ) -> tuple[Edge, ...]:
        """Add a DAG node; constants among `args` become params. Returns an edge per output.

        Raises: GraphTooLarge.
        """
        spec = spec_of(op, model)
        if spec is None:
            raise GraphBroken(f"there is no op {op!r}")
        params: dict[str, ParamValue] = {}
        inputs: dict[str, Edge] = {}
        for name, arg in args.items():
            if isinstance(arg, Edge):
                inputs[name] = arg
            elif isinstance(arg, Steering | Run):
                inputs[name] = arg.edge
            else:
                params[name] = _param(arg, spec.type_of(name))
        for index, patch in enumerate(model.patches if model else ()):
            inputs[f"patch_{index}"] = self.patch_edges[patch.file]
        self.require_room()
        if self.call is not None:
            index, num_calls = self.call.index, self.call.num_calls
            part = f"call-{index}" if part is None else f"call-{index}/{part}"
            value = value + index * max_value if value else 0
            max_value = max_value * num_calls
        node_id = dag_id(self.node_id, part)
        self.nodes.append(node_id)
        origin = Origin(
            node_id=self.node_id,
            class_type=self.schema.class_type,
            value=value,
            max_value=max_value,
        )
        return self.builder.add(
            node_id,
            op,
            model=model,
            params=params,
            inputs=inputs,
            outputs=spec.outputs,
            hidden=hidden,
            origin=origin,
        )

    def add_patch(self, file: FileIdentity) -> None:
        """Add the node that fetches a patch file; users of the patched model will wait for it.

        The file's first node in the prompt is the one that they wait for. Raises: GraphTooLarge.
        """
        (edge,) = self.add(
            "patch_fetch",
            {"path": file.path, "size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns},
        )
        self.patch_edges.setdefault(file, edge)

    def require_room(self, more_nodes: int = 0, more_numbers: int = 0) -> None:
        """See that the prompt's DAG can get another node, or as much more as said.

        Raises: GraphTooLarge.
        """
        num_nodes = self.builder.num_nodes + more_nodes
        num_numbers = self.builder.num_numbers + more_numbers
        if num_nodes < MAX_GRAPH_NODES and num_numbers < MAX_GRAPH_NUMBERS:
            return
        raise GraphTooLarge(
            Complaint(
                type="prompt_too_large",
                message="Prompt is too large",
                details=f"it becomes more than {num_nodes} model calls with {num_numbers} sigmas",
                extra_info={"max_nodes": MAX_GRAPH_NODES, "max_sigmas": MAX_GRAPH_NUMBERS},
            )
        )

    def _is_known(self, edge: Edge) -> bool:
        return self.known.has(edge, self.builder.signature(edge.source))

    def _constant(self, name: str) -> Any:
        spec = self.schema.input(name)
        match self.inputs[name]:
            case Constant(value=value):
                given = value
            case Edge() as edge:
                given = self.known_or_needed(edge)
            case _:
                raise self.refusal(name, f"a {spec.type} was expected")
        config = partial(spec.config, self.catalog)
        converted = convert(spec, given, config)
        check_range(spec, converted, config)
        if isinstance(spec.choices, tuple):
            check_choice(spec, converted, spec.choices, config)
        return converted


def _param(arg: Value | ParamValue, type_: str) -> ParamValue:
    if isinstance(arg, msgspec.Struct) and not isinstance(arg, Constant):
        raise GraphBroken(f"a {type(arg).__name__} is given as a {type_}")
    value = arg.value if isinstance(arg, Constant) else arg
    if type_ == FLOAT and isinstance(value, int):
        return float(value)
    return value
