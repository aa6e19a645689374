"""What a request would meet if it came now: who is before it, how long it takes, what is loaded.

Estimates from measured profiles, and from guesses where nothing was measured yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ...graph_import.handles import ModelKey
from ...graph_import.ir import Graph, NodeId
from .profiles import Profiles
from .request_state import RequestState


class ModelForecast(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the request needs.

    Args:
        num_warm: executors that have its weights.
        load_s: estimated seconds of reading it, where it isn't.
    """

    model: str
    file: str
    num_bytes: int
    num_warm: int
    load_s: float


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Estimated seconds of a request.

    Args:
        wait_s: until the executors have done what was accepted before.
        load_s: of reading weights that no executor has.
        run_s: of its calls along the longest path.
        work_s: of all its calls, one after another.
        is_measured: whether every call's kind has been measured.
    """

    wait_s: float
    load_s: float
    run_s: float
    work_s: float
    is_measured: bool
    num_executors: int
    num_before: int
    models: tuple[ModelForecast, ...]


def forecast(
    graph: Graph,
    live: Iterable[RequestState],
    resident: Collection[Collection[ModelKey]],
    profiles: Profiles,
) -> Forecast:
    """What `graph` would meet.

    Args:
        live: the accepted requests that have not ended.
        resident: the models of each executor.
    """
    before = list(live)
    calls = {
        node.id: profiles.call(node.op, None if node.model is None else node.model.key)
        for node in graph.nodes
    }
    ends: dict[NodeId, float] = {}
    for node in graph.nodes:  # in topological order
        begin_s = max((ends.get(edge.source, 0.0) for _, edge in node.inputs), default=0.0)
        ends[node.id] = begin_s + calls[node.id].seconds_s
    models = tuple(_models(graph, resident, profiles))
    return Forecast(
        wait_s=sum(request.work.seconds_s for request in before) / max(1, len(resident)),
        load_s=sum(model.load_s for model in models if not model.num_warm),
        run_s=max(ends.values(), default=0.0),
        work_s=sum(call.seconds_s for call in calls.values()),
        is_measured=all(call.is_measured for call in calls.values()),
        num_executors=len(resident),
        num_before=len(before),
        models=models,
    )


def _models(
    graph: Graph, resident: Collection[Collection[ModelKey]], profiles: Profiles
) -> Iterable[ModelForecast]:
    keys = dict.fromkeys(node.model.key for node in graph.nodes if node.model is not None)
    for key in keys:
        yield ModelForecast(
            model=key.label(),
            file="+".join(file.path.rsplit("/", 1)[-1] for file in key.files),
            num_bytes=key.size_bytes,
            num_warm=sum(key in models for models in resident),
            load_s=profiles.load(key).seconds_s,
        )
