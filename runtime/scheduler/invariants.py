"""What must hold after every event. Tests call this all the time, the live coordinator never.

Everything is counted again from the statuses of nodes and the running batches, and compared with
what the parts of the scheduler keep up to date as they go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...graph_import.handles import ModelKey
from ...graph_import.ir import NodeId
from ..errors import InvariantBroken
from ..ids import RequestId
from ..protocol import TensorKey
from .executors import ExecutorSlot, RunningBatch, RunningCall
from .node_state import NodeState, NodeStatus, ValueId
from .request_state import RequestState
from .scheduler import Scheduler
from .tensors import HeldValue

OPEN_STATUSES = (NodeStatus.WAITING, NodeStatus.READY, NodeStatus.RUNNING)


def check_scheduler(scheduler: Scheduler) -> None:
    """Raises: InvariantBroken: names the rule and tells the request's story."""
    for request in scheduler.requests.values():
        _check_nodes(request)
        _check_values(request, scheduler)
    _check_batches(scheduler)
    _check_loops(scheduler)
    _check_queue(scheduler)
    _check_progress(scheduler)


def _require(holds: bool, rule: str, request: RequestState | None = None) -> None:
    if not holds:
        story = "" if request is None else "; " + request.tell_story()
        raise InvariantBroken(rule + story)


def _check_nodes(request: RequestState) -> None:
    """A node is in just the state that its inputs and its request allow."""
    num_open = 0
    for node_id, state in request.nodes.items():
        rule = f"node {node_id} is {state.status}"
        num_open += state.status in OPEN_STATUSES
        is_running = state.status is NodeStatus.RUNNING
        _require((node_id in request.running) == is_running, f"{rule}: list of running", request)
        if state.status in (NodeStatus.WAITING, NodeStatus.READY):
            _require(request.ending is None, f"{rule} in a request that is ending", request)
            missing = sum(not request.is_coming(state, value_id) for value_id in state.inputs)
            _require(missing == state.num_missing, f"{rule}: count of missing inputs", request)
            is_ready = state.status is NodeStatus.READY
            _require(is_ready == (missing == 0), f"{rule} and misses {missing} inputs", request)
        if state.status is NodeStatus.DROPPED:
            _require(request.ending is not None, f"{rule} in a request that goes on", request)
    if request.ending is not None:
        _require(bool(request.running), "a request with nothing running has not ended", request)
        return
    _require(request.work.num_calls == num_open, "count of open calls", request)
    open_sinks = {i for i in request.sinks if request.nodes[i].status is not NodeStatus.DONE}
    _require(request.open_sinks == open_sinks, "set of open sinks", request)
    is_due = not open_sinks and not request.growth.pending
    _require(not is_due, "a request whose sinks are done has not ended", request)
    is_stuck = not num_open and request.growth.in_flight is None
    _require(not is_stuck, "a request has nothing to do and no question asked", request)


def _check_values(request: RequestState, scheduler: Scheduler) -> None:
    """Values are there as long as somebody waits for them, no longer, and can be fetched."""
    _require(
        request.ending is None or not request.values, "a request that is ending has values", request
    )
    for value_id, value in request.values.items():
        readers = request.readers.get(value_id, ())
        num_readers = sum(state.status is not NodeStatus.DONE for state in readers)
        _require(value.num_readers == num_readers, f"readers of {value_id}", request)
        _require(request.is_wanted(value_id), f"nobody wants {value_id}", request)
        _require(not value.is_retired, f"{value_id} is there and given up", request)
        is_dead = not scheduler.executors.is_alive(*value.maker)
        is_gone = is_dead and value.dies_with(*value.maker)
        _require(not is_gone, f"{value_id} is held by a dead executor", request)
    for state in request.nodes.values():
        if state.status in (NodeStatus.WAITING, NodeStatus.READY):
            for value_id in state.inputs:
                _require(_can_come(request, value_id), f"nothing makes {value_id}", request)


def _can_come(request: RequestState, value_id: ValueId) -> bool:
    """Whether a value is there or its node is still to finish."""
    return value_id in request.values or request.nodes[value_id[0]].status in OPEN_STATUSES


def _check_loops(scheduler: Scheduler) -> None:
    """Just the live requests that have calls of their loops left are counted there."""
    widths: Counter[ModelKey] = Counter()
    for request in scheduler.requests.values():
        loop = request.loop
        if request.ending is None and loop is not None and request.work.count(loop.profile):
            widths[loop.kind.model.key] += loop.width
    _require(scheduler.loops.widths == widths, "requests in loops")


def _check_batches(scheduler: Scheduler) -> None:
    """Running nodes and calls in batches are one to one; the values in use are known to be."""
    calls = [
        (slot, call)
        for slot in scheduler.executors
        for batch in slot.batches()
        for call in batch.calls
    ]
    sent = Counter(call.state for _, call in calls)
    running = [s for request in scheduler.requests.values() for s in request.running.values()]
    _require(sent == Counter(running), "running nodes and sent calls differ")
    uses = Counter(value for _, call in calls for value in call.inputs.values())
    for value, num_running in uses.items():
        _require(value.num_running == num_running, f"running readers of {value.ref}")
    for slot, call in calls:
        request = call.state.request
        _require(call.state.executor == slot.executor, "a node runs elsewhere", request)
        for value in call.inputs.values():
            holds = value.holders.get(slot.executor) == slot.incarnation
            _require(holds, f"{slot.executor} was sent a value and is no holder", request)
    for slot in scheduler.executors:
        _check_chain(slot)
        _check_calls(slot, scheduler)
        _check_rest(slot, scheduler)
        for batch in slot.batches():
            is_over = batch.is_unwanted or batch.is_orphaned
            _require(batch.is_cancelled == is_over, "a batch that nobody wants runs on")
    _check_tensors(scheduler, list(uses))


def _check_chain(slot: ExecutorSlot) -> None:
    """Only the foremost batch awaits others' values; later ones need what is made before them."""
    _require(slot.running is not None or not slot.later, "a chain that does not begin")
    before: set[tuple[RequestId, NodeId]] = set()
    is_over = False
    for batch in slot.batches():
        is_over = is_over or batch.is_cancelled or batch.is_recalled
        for call in batch.calls:
            request = call.state.request
            _check_awaited(slot, batch, call)
            made = {(request.request_id, value_id[0]) for value_id in call.chained}
            _require(is_over or made <= before, "a chain lacks what it needs", request)
            _require(batch is slot.running or not call.awaited, "a chain waits", request)
        before |= {(c.state.request.request_id, c.state.node.id) for c in batch.calls}


def _check_calls(slot: ExecutorSlot, scheduler: Scheduler) -> None:
    """A batch has no more calls than may be, and a link with several goes on with as many."""
    config = scheduler.config
    before: RunningBatch | None = None
    for batch in slot.batches():
        num_calls = len(batch.calls)
        limit = 1 if config.is_strict or batch.model is None else config.max_batch
        _require(0 < num_calls <= limit, f"a batch of {num_calls} calls")
        if before is not None and num_calls > 1:
            is_same = (batch.op, batch.model) == (before.op, before.model)
            _require(is_same and num_calls == len(before.calls), "a link that does not go on")
        if num_calls > 1:
            is_suspect = any(call.state.num_deaths for call in batch.calls)
            _require(not is_suspect, "a node that was running in a death is not alone")
        before = batch


def _check_rest(slot: ExecutorSlot, scheduler: Scheduler) -> None:
    """What is to go on behind the running batch is in nobody's way."""
    if slot.running is None or slot.running.is_cancelled or not slot.later:
        return
    first = slot.later[0]
    _require(
        all(batch.is_recalled == first.is_recalled for batch in slot.later), "half a chain recalled"
    )
    if first.is_recalled:
        return
    link = {call.state for call in first.calls}
    order = first.calls[0].state.order
    for state in _ready(scheduler):
        is_behind = state.order < order and state not in link
        _require(not is_behind, f"{state.node.id} waits behind a chain", state.request)
    _require(not slot.is_drop_wanted, "a chain goes on where models are to be dropped")
    for batch in slot.later:
        is_over = any(call.state.request.ending is not None for call in batch.calls)
        _require(not is_over, "a chain goes on for a request that ends")
    is_idle = any(other.running is None for other in scheduler.executors)
    could_part = is_idle and any(batch.could_part for batch in slot.later)
    _require(not could_part, "a chain keeps what an idle executor could take")


def _check_awaited(slot: ExecutorSlot, batch: RunningBatch, call: RunningCall) -> None:
    """A call has all its inputs but those that its chain makes, and deferred ones that another
    executor makes at this moment."""
    request = call.state.request
    known = sorted([*call.inputs, *call.awaited, *call.chained])
    _require(known == sorted(call.state.inputs), "a call lacks an input", request)
    for value_id in () if batch.is_cancelled else call.awaited:
        rule = f"{call.state.node.id} waits for {value_id}"
        maker = request.nodes[value_id[0]]
        _require(value_id in call.state.deferred, f"{rule} and reads it eagerly", request)
        _require(maker.status is NodeStatus.RUNNING, f"{rule}, which nobody makes", request)
        _require(maker.executor != slot.executor, f"{rule}, which is made behind it", request)


def _check_tensors(scheduler: Scheduler, in_use: list[HeldValue]) -> None:
    """No tensor belongs to two values: releasing one must not take the other's."""
    values = {id(value): value for value in in_use}
    for request in scheduler.requests.values():
        values.update((id(value), value) for value in request.values.values())
    owners: Counter[TensorKey] = Counter()
    for value in values.values():
        owners.update(set(value.keys))
    shared = [key for key, num_owners in owners.items() if num_owners > 1]
    _require(not shared, f"tensors of two values: {shared}")
    files = {name for value in values.values() for name in value.checkpoints}
    _require(scheduler.tensors.needed_checkpoints() == files, "files that are needed")


def _check_queue(scheduler: Scheduler) -> None:
    """The queue holds just the ready nodes, in order."""
    queued: list[NodeState] = []
    for group in scheduler.ready.groups():
        orders = [state.order for state in group.nodes]
        _require(bool(orders) and orders == sorted(orders), "order of the ready queue")
        for state in group.nodes:
            same = (state.node.op, state.node.model) == (group.op, group.model)
            _require(same, "a node is in another's group", state.request)
        queued.extend(group.nodes)
    _require(Counter(queued) == Counter(_ready(scheduler)), "the ready queue is not what is ready")


def _ready(scheduler: Scheduler) -> Iterator[NodeState]:
    for request in scheduler.requests.values():
        for state in request.nodes.values():
            if state.status is NodeStatus.READY:
                yield state


def _check_progress(scheduler: Scheduler) -> None:
    """While an executor idles, what is ready waits for a busy one that has the model.

    Where an idle one has the model too, the busy one has the patches, and the idle one has not.
    """
    idle = [slot for slot in scheduler.executors if slot.running is None]
    if not idle:
        return
    for group in scheduler.ready.groups():
        head = group.nodes[0]
        rule = f"node {head.node.id} is ready, an executor idle, and nothing is sent"
        _require(group.model is not None, rule, head.request)
        assert group.model is not None
        key = group.model.key
        has_model = [
            slot for slot in scheduler.executors if scheduler.replicas.has(slot.executor, key)
        ]
        _require(bool(has_model), rule, head.request)
        if all(slot.running is not None for slot in has_model):
            continue
        patches = [
            scheduler.replicas.patches(slot.executor, key)
            if slot.planned_patches(group.model) is None
            else slot.planned_patches(group.model)
            for slot in has_model
        ]
        fit = [s for s, p in zip(has_model, patches, strict=True) if p == group.model.patches]
        _require(bool(fit), rule, head.request)
        _require(all(slot.running is not None for slot in fit), rule, head.request)
