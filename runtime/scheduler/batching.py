"""The ready nodes of all requests, grouped by what could run as one batch.

Nodes of one op and one ModelRef (weights, patches, options) form a group, whatever request they
belong to. Those of a batch also read values of equal shapes; sampler parameters and the steps that
they are at may differ. Source: LegoDiffusion (arXiv 2604.08123), section 5.1 and Algorithm 1, lines
7-10.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

from ...graph_import.handles import ModelRef
from ..protocol import TreeValue
from .batch_costs import BatchCosts
from .node_state import NodeState, ValueId
from .profiles import Shape
from .tensors import HeldValue

_order = attrgetter("order")


@dataclass(slots=True)
class Passes:
    """How many batches went before a group's head, though they come later in order, and how long.

    See `switching.py`.
    """

    _head: NodeState | None = None
    _num_batches: int = 0
    _seconds_s: float = 0.0

    def of(self, head: NodeState) -> tuple[int, float]:
        """Batches and estimated seconds before this head; none before another one."""
        return (self._num_batches, self._seconds_s) if head is self._head else (0, 0.0)

    def add(self, head: NodeState, seconds_s: float) -> None:
        """Another batch goes before it."""
        num_batches, before_s = self.of(head)
        self._head, self._num_batches, self._seconds_s = head, num_batches + 1, before_s + seconds_s


@dataclass(slots=True, eq=False)
class ReadyGroup:
    """Ready nodes of one op and one model, in scheduler order; never empty inside the queue."""

    op: str
    model: ModelRef | None
    nodes: list[NodeState] = field(default_factory=list)
    passes: Passes = field(default_factory=Passes)


@dataclass(slots=True)
class ReadyQueue:
    """All ready nodes. Adding and removing cost O(log n) comparisons.

    Args:
        with_deferred: those of them that have deferred inputs.
    """

    with_deferred: dict[NodeState, None] = field(default_factory=dict)
    _groups: dict[tuple[str, ModelRef | None], ReadyGroup] = field(default_factory=dict)

    def add(self, state: NodeState) -> None:
        """A node has become ready."""
        key = (state.node.op, state.node.model)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = ReadyGroup(*key)
        insort(group.nodes, state, key=_order)
        if state.deferred:
            self.with_deferred[state] = None

    def remove(self, state: NodeState) -> None:
        """A node is not ready any more. Raises: KeyError, ValueError: it wasn't."""
        key = (state.node.op, state.node.model)
        group = self._groups[key]
        index = bisect_left(group.nodes, state.order, key=_order)
        if index == len(group.nodes) or group.nodes[index] is not state:
            raise ValueError(f"node {state.node.id} is not in the ready queue")
        del group.nodes[index]
        if not group.nodes:
            del self._groups[key]
        self.with_deferred.pop(state, None)

    def group(self, op: str, model: ModelRef | None) -> ReadyGroup | None:
        """The ready nodes of an op on a model, if there are any."""
        return self._groups.get((op, model))

    def groups(self) -> Iterable[ReadyGroup]:
        """The groups, in no order that means anything."""
        return self._groups.values()


def shape_of(state: NodeState, values: Mapping[ValueId, HeldValue]) -> Shape:
    """What decides, with op and model, how long a call takes: the shapes that it reads.

    Of each value its first tensor's: latents, texts, pictures. What is not among `values` or has no
    tensor is left out. Deferred inputs, which may still be made, follow from the others.
    """
    eager = (value_id for value_id in state.inputs if value_id not in state.deferred)
    shapes = (_first_shape(values.get(value_id)) for value_id in eager)
    return tuple(shape for shape in shapes if shape)


def _first_shape(value: HeldValue | None) -> tuple[int, ...]:
    tensors = value.ref.tensors if value and isinstance(value.ref, TreeValue) else ()
    return tensors[0].shape if tensors else ()


def gather(
    group: ReadyGroup,
    first: int,
    *,
    max_batch: int,
    costs: BatchCosts,
    may_go_along: Callable[[NodeState], bool],
    num_standing_by: int,
    cost_here: Callable[[NodeState], float],
) -> list[NodeState]:
    """The nodes to send together with `group.nodes[first]`, in scheduler order.

    Those that read values of the same shapes and `may_go_along` (see `switching.py`), as many of
    them as `costs` say is worth it.

    When several executors stand idle with the model loaded (`num_standing_by`, the chosen one
    included), the nodes are split evenly over them instead of making one batch as big as possible:
    two forward passes at once on idle devices end before one of twice the size, and a batch may
    not starve a device that has nothing else to do. Each executor then takes the nodes whose
    inputs it has (`cost_here`: seconds to fetch them) out of those that go out in this round.

    A node that was running when an executor died goes alone: if it is what kills executors, it must
    not take requests down that merely shared its batch.
    """
    head = group.nodes[first]
    if max_batch == 1 or group.model is None or head.num_deaths:
        return [head]
    spread = max(1, num_standing_by)
    shape = shape_of(head, head.request.values)
    alike = (
        state
        for state in islice(group.nodes, first + 1, None)
        if not state.num_deaths
        and shape_of(state, state.request.values) == shape
        and may_go_along(state)
    )
    others = list(islice(alike, max_batch * spread - 1))
    size = costs.best_size(math.ceil((1 + len(others)) / spread))
    if spread > 1:
        others.sort(key=cost_here)
    return sorted([head, *others[: size - 1]], key=_order)
