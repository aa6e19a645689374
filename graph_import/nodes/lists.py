"""ComfyUI's lists while a prompt is lowered: which calls a node with lists on its inputs becomes.

A class with `is_input_list` gets all items in one call. Any other class is called once per item of
the longest list, shorter ones repeat their last item, and its outputs are lists again. How many
items an edge's list has must be known: until then the node is pending.
Source: spec comfyui-api/validation.md, section 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import GraphBroken
from ..ir import Edge
from .base import NodeClass
from .hooked import under_encoder_hooks
from .literals import InputRefused
from .lowering import CallOf, Lowering, NeedsValue
from .schema import NodeSchema
from .values import EdgeList, ListValue, Value

MAX_ITEMS = 4096


def lower_node(cls: NodeClass, node: Lowering) -> tuple[Value, ...]:
    """Lower `node`, in as many calls as its inputs ask for; its outputs, lists among them.

    The nodes added are in `node.nodes`, also where the node turns out to need more values.

    Raises: NeedsValue; InputRefused; GraphBroken: the class needs a value after it added a node.
    """
    calls = calls_of(cls.schema, node)
    outputs: list[tuple[Value, ...]] = []
    needed: dict[Edge, None] = {}
    for call in calls:
        try:
            outputs.append(_lower_call(cls, call))
        except NeedsValue as needs:
            needed.update(dict.fromkeys(needs.edges))
        finally:
            if call is not node:
                node.nodes.extend(call.nodes)
    if needed:
        raise NeedsValue(tuple(needed))
    if len(calls) == 1 and calls[0].call is None:
        return outputs[0]
    return tuple(_joined(slot) for slot in zip(*outputs, strict=True))


def wanted_inputs(cls: NodeClass, node: Lowering) -> frozenset[str]:
    """The lazy inputs that the node asks for; none if it can't tell yet or is going to refuse."""
    try:
        calls = calls_of(cls.schema, node)
        return frozenset(name for call in calls for name in cls.wanted(call))
    except (NeedsValue, InputRefused):
        return frozenset()
    finally:
        node.builder.take_back(node.nodes)
        node.nodes.clear()


def calls_of(schema: NodeSchema, node: Lowering) -> tuple[Lowering, ...]:
    """The calls that `node` becomes; the lists of edges are taken apart.

    Raises: NeedsValue: how long a list is isn't known; InputRefused: one is empty or too long.
    """
    lists = {name: v for name, v in node.inputs.items() if isinstance(v, ListValue)}
    if not lists and not schema.is_input_list:
        return (node,)
    lengths = _lengths(node, lists)
    apart = {name: _taken_apart(node, name, value, lengths) for name, value in lists.items()}
    for name, items in apart.items():
        if len(items) > MAX_ITEMS:
            raise node.refusal(name, f"a list of {len(items)} items is too long")
    if schema.is_input_list:
        whole = {name: apart.get(name, (value,)) for name, value in node.inputs.items()}
        inputs = {name: ListValue(items=items) for name, items in whole.items()}
        return (replace(node, inputs=inputs, nodes=[]),)
    for name, items in apart.items():
        if not items:
            raise node.refusal(name, "the list is empty")
    num_calls = max(map(len, apart.values()))
    return tuple(
        replace(
            node,
            inputs=_inputs_at(node.inputs, apart, index),
            nodes=[],
            call=CallOf(index=index, num_calls=num_calls),
        )
        for index in range(num_calls)
    )


def _lower_call(cls: NodeClass, call: Lowering) -> tuple[Value, ...]:
    try:
        return under_encoder_hooks(call, cls.lower(call))
    except NeedsValue as needs:
        if call.nodes:
            raise GraphBroken(f"{call.node_id!r} was half lowered", node_id=call.node_id) from needs
        raise


def _inputs_at(
    inputs: Mapping[str, Value], lists: Mapping[str, tuple[Value, ...]], index: int
) -> dict[str, Value]:
    """What the call at `index` gets."""
    chosen = {name: items[min(index, len(items) - 1)] for name, items in lists.items()}
    return {name: chosen.get(name, value) for name, value in inputs.items()}


def _lengths(node: Lowering, lists: Mapping[str, ListValue]) -> Mapping[Edge, int]:
    """How long the lists of edges are. Raises: NeedsValue: with all that are not known."""
    unknown: list[Edge] = []
    lengths: dict[Edge, int] = {}
    for value in lists.values():
        for item in value.items:
            if isinstance(item, EdgeList):
                try:
                    lengths[item.edge] = int(node.known_or_needed(item.length) or 0)
                except NeedsValue:
                    unknown.append(item.length)
    if unknown:
        raise NeedsValue(tuple(dict.fromkeys(unknown)))
    return lengths


def _taken_apart(
    node: Lowering, name: str, value: ListValue, lengths: Mapping[Edge, int]
) -> tuple[Value, ...]:
    """The items of a list, with a node that picks each item of an edge's."""
    items: list[Value] = []
    for item in value.items:
        if isinstance(item, EdgeList):
            if len(items) + lengths[item.edge] > MAX_ITEMS:
                raise node.refusal(name, f"a list of {lengths[item.edge]} items is too long")
            for index in range(lengths[item.edge]):
                part = f"item-{name}-{len(items)}"
                items += node.add("list_item", {"items": item.edge, "index": index}, part=part)
        else:
            items.append(item)
    return tuple(items)


def _joined(values: tuple[Value, ...]) -> ListValue:
    """One output of all calls."""
    items: list[Value | EdgeList] = []
    for value in values:
        if isinstance(value, ListValue):
            items += value.items
        else:
            items.append(value)
    return ListValue(items=tuple(items))
