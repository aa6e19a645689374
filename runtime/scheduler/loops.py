"""Loops: what requests call again and again, above all steps of a sampling, and who is in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ...graph_import.handles import ModelKey, ModelRef
from .node_state import NodeState
from .profiles import CallProfile, Shape

if TYPE_CHECKING:
    from .request_state import RequestState


@dataclass(slots=True, eq=False, weakref_slot=True)
class LoopKind:
    """An op on a model that requests call again and again; one object for all of them.

    Args:
        inside: the requests that have begun it and not ended it, and the shapes that it reads.
    """

    op: str
    model: ModelRef
    inside: dict[RequestState, Shape] = field(default_factory=dict)

    def has(self, state: NodeState) -> bool:
        """Whether a node is such a call."""
        return state.node.op == self.op and state.node.model == self.model


@dataclass(slots=True, frozen=True, eq=False)
class Loop:
    """What a request calls again and again.

    Args:
        num_calls: all its calls of that kind, with these patches and with others.
        width: how many of them may run at once, as those of samplings side by side.
    """

    kind: LoopKind
    profile: CallProfile
    num_calls: int
    width: int


@dataclass(slots=True, eq=False)
class LoopBook:
    """The kinds of loops of live requests. Clients choose patches: others are forgotten.

    Args:
        widths: how many calls of loops that are not over may run at once, by the loops' models.
    """

    widths: dict[ModelKey, int] = field(default_factory=dict)
    _kinds: WeakValueDictionary[tuple[str, ModelRef], LoopKind] = field(
        default_factory=WeakValueDictionary
    )
    _open: set[RequestState] = field(default_factory=set)

    def find(self, states: Iterable[NodeState]) -> Loop | None:
        """What takes most of a request's time, if it is more than one call."""
        states = [state for state in states if state.node.model is not None]
        calls = Counter((state.node.op, state.node.model, state.profile) for state in states)
        profiles = Counter(state.profile for state in states)
        loops = [
            (num_calls * profile.seconds_s, op, model, profile)
            for (op, model, profile), num_calls in calls.items()
            if model is not None and num_calls > 1
        ]
        if not loops:
            return None
        _, op, model, profile = max(loops, key=itemgetter(0))
        kind = self._kinds.setdefault((op, model), LoopKind(op, model))
        depths = Counter(state.node.depth for state in states if state.profile is profile)
        return Loop(kind, profile, profiles[profile], max(depths.values()))

    def enter(self, request: RequestState, loop: Loop) -> None:
        """A request has calls of its loop left to make, whether it has begun it or not."""
        key = loop.kind.model.key
        if request not in self._open:
            self._open.add(request)
            self.widths[key] = self.widths.get(key, 0) + loop.width

    def leave(self, request: RequestState, loop: Loop) -> None:
        """A request has made all calls of its loop, or is over."""
        loop.kind.inside.pop(request, None)
        key = loop.kind.model.key
        if request in self._open:
            self._open.remove(request)
            self.widths[key] -= loop.width
            if not self.widths[key]:
                del self.widths[key]
