"""What batches of a chain find of what earlier ones made, and when they can't run.

By itself, and in a real executor process.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from kit.executors import ExecutorProcess, node_call, outputs, run_batch, tree
from nodeloom.graph_import.ir import NodeId
from nodeloom.runtime.executor.chain import Chain
from nodeloom.runtime.executor.deferred import Arrivals
from nodeloom.runtime.ids import ExecutorId, RequestId
from nodeloom.runtime.protocol import (
    AwaitedValue,
    BatchDone,
    CallCancelled,
    CallDone,
    CallFailed,
    CallLost,
    CallResult,
    CancelBatch,
    ErrorReport,
    InputReady,
    NodeCall,
    RecallBatches,
    ReleaseTensors,
    RunBatch,
    ScalarValue,
    TreeValue,
    ValueRef,
)

Pair = tuple[ExecutorProcess, ExecutorProcess]

FAILED = CallFailed(
    error=ErrorReport(
        code="node_failed", exception_type="E", message="no", traceback=(), current_inputs={}
    )
)


def awaited(node_id: str, port: int = 0) -> AwaitedValue:
    return AwaitedValue(request_id=RequestId("r"), node_id=NodeId(node_id), port=port)


def link(
    after: RunBatch | None, node_id: str, *reads: AwaitedValue, late: bool = False
) -> RunBatch:
    """A batch of one call behind another one."""
    inputs = {chr(97 + index): value for index, value in enumerate(reads)}
    call = node_call(node_id, inputs=inputs, deferred=tuple(inputs) if late else ())
    after_id = None if after is None else after.batch_id
    return msgspec.structs.replace(run_batch("op", call), after=after_id)


def given(*numbers: int) -> CallDone:
    """A call that gave these numbers, port by port."""
    outputs = tuple(ScalarValue(value=number) for number in numbers)
    return CallDone(outputs=outputs, ui=None, preview=None)


def report(batch: RunBatch, *results: CallResult) -> BatchDone:
    return BatchDone(
        executor=ExecutorId("e"),
        incarnation="i",
        batch_id=batch.batch_id,
        results=results,
        resident=(),
        loaded=(),
        run_s=0.1,
    )


def never() -> None:
    raise AssertionError("nothing here is waited for")


@pytest.fixture
def first() -> RunBatch:
    return link(None, "x")


@pytest.fixture
def chain(first: RunBatch) -> Chain:
    """The first batch is done: `x` gave 1 and 2."""
    chain = Chain()
    assert chain.begin(first, Arrivals())
    chain.note(first, report(first, given(1, 2)))
    return chain


def test_a_batch_that_follows_nothing_always_begins(chain: Chain) -> None:
    assert chain.begin(link(None, "y"), Arrivals())


def test_a_link_gets_what_the_batch_before_it_made_port_by_port(
    chain: Chain, first: RunBatch
) -> None:
    arrivals = Arrivals()
    assert chain.begin(link(first, "y", awaited("x", 1), awaited("x", 0)), arrivals)
    taken = [arrivals.take(awaited("x", port), never) for port in range(2)]
    assert taken == [ScalarValue(value=1), ScalarValue(value=2)]


def test_a_link_gets_what_any_earlier_batch_of_the_chain_made(
    chain: Chain, first: RunBatch
) -> None:
    second = link(first, "y", awaited("x"))
    assert chain.begin(second, Arrivals())
    chain.note(second, report(second, given(3)))
    arrivals = Arrivals()
    assert chain.begin(link(second, "z", awaited("x"), awaited("y")), arrivals)
    assert arrivals.take(awaited("x"), never) == ScalarValue(value=1)
    assert arrivals.take(awaited("y"), never) == ScalarValue(value=3)


def test_a_link_that_is_not_next_does_not_begin(chain: Chain, first: RunBatch) -> None:
    second = link(first, "y")
    assert not chain.begin(link(second, "z"), Arrivals())


def test_a_link_whose_input_nobody_made_does_not_begin(chain: Chain, first: RunBatch) -> None:
    assert not chain.begin(link(first, "y", awaited("other")), Arrivals())
    assert not chain.begin(link(first, "y", awaited("x", 2)), Arrivals())


def test_a_late_input_may_still_come_from_elsewhere(chain: Chain, first: RunBatch) -> None:
    assert chain.begin(link(first, "y", awaited("other"), late=True), Arrivals())


def test_a_late_input_that_the_chain_made_is_there(chain: Chain, first: RunBatch) -> None:
    arrivals = Arrivals()
    assert chain.begin(link(first, "y", awaited("x"), late=True), arrivals)
    assert arrivals.take(awaited("x"), never) == ScalarValue(value=1)


@pytest.mark.parametrize("result", [FAILED, CallLost(missing=()), CallCancelled()])
def test_nothing_begins_after_a_batch_that_was_not_done(
    chain: Chain, first: RunBatch, result: CallResult
) -> None:
    second = link(first, "y")
    chain.note(second, report(second, result))
    third = link(second, "z", awaited("x"))
    assert not chain.begin(third, Arrivals())
    chain.note(third, report(third, CallCancelled()))
    assert not chain.begin(link(third, "w"), Arrivals())


def test_one_call_that_was_not_done_is_enough(chain: Chain, first: RunBatch) -> None:
    calls = node_call("y"), node_call("z")
    second = msgspec.structs.replace(run_batch("op", *calls), after=first.batch_id)
    chain.note(second, report(second, given(3), FAILED))
    assert not chain.begin(link(second, "w", awaited("y")), Arrivals())


def test_a_new_chain_knows_nothing_of_the_last_one(chain: Chain) -> None:
    other = link(None, "y")
    assert chain.begin(other, Arrivals())
    chain.note(other, report(other, given(3)))
    assert not chain.begin(link(other, "z", awaited("x")), Arrivals())


def test_values_of_other_requests_are_others(chain: Chain, first: RunBatch) -> None:
    other = msgspec.structs.replace(awaited("x"), request_id=RequestId("other"))
    assert not chain.begin(link(first, "y", other), Arrivals())


# in a real process ------------------------------------------------------------------------------


def scaled(node_id: str, image: ValueRef | AwaitedValue, side: int) -> NodeCall:
    return node_call(
        node_id,
        inputs={"image": image},
        upscale_method="nearest-exact",
        width=side,
        height=side,
        crop="disabled",
    )


def picture(node_id: str = "image", *, side: int = 64) -> NodeCall:
    return node_call(node_id, width=side, height=side, batch_size=1, color=0x804020)


def after(before: RunBatch, op: str, *calls: NodeCall) -> RunBatch:
    return msgspec.structs.replace(run_batch(op, *calls), after=before.batch_id)


def held_up() -> RunBatch:
    """It runs, and waits for an image until `go_on` tells of one."""
    return run_batch("image_scale", scaled("held", awaited("late"), 48))


def go_on(executor: ExecutorProcess, batch: RunBatch, image: TreeValue) -> None:
    executor.send(InputReady(batch_id=batch.batch_id, awaited=awaited("late"), value=image))


def make_image(executor: ExecutorProcess) -> TreeValue:
    return tree(outputs(executor.run(run_batch("empty_image", picture())))[0])


def reports(executor: ExecutorProcess, *batches: RunBatch) -> list[BatchDone]:
    """The reports of these batches, which come in this order."""
    found = [executor.receive(BatchDone) for _ in batches]
    assert [done.batch_id for done in found] == [batch.batch_id for batch in batches]
    return found


def is_cancelled(done: BatchDone) -> bool:
    return all(isinstance(result, CallCancelled) for result in done.results)


def forget(executor: ExecutorProcess, *reported: BatchDone, also: Sequence[TreeValue] = ()) -> None:
    """Release all that the batches gave; then nothing is left."""
    values = [
        value
        for done in reported
        for result in done.results
        if isinstance(result, CallDone)
        for value in result.outputs
        if isinstance(value, TreeValue)
    ]
    keys = [ref.key for value in [*values, *also] for ref in value.tensors if ref.inline is None]
    executor.send(ReleaseTensors(keys=tuple(keys)))
    assert executor.held_bytes() == 0


def test_a_chain_runs_through_without_another_word(pair: Pair) -> None:
    executor = pair[0]
    first = run_batch("empty_image", picture())
    second = after(first, "image_scale", scaled("a", awaited("image"), 96))
    third = after(second, "image_scale", scaled("b", awaited("a"), 48))
    sizes = node_call("size", num_outputs=3, inputs={"image": awaited("a")})
    last = after(third, "image_size", sizes)
    for batch in (first, second, third, last):
        executor.send(batch)
    done = reports(executor, first, second, third, last)
    assert tree(outputs(done[1])[0]).tensors[0].shape == (1, 96, 96, 3)
    assert tree(outputs(done[2])[0]).tensors[0].shape == (1, 48, 48, 3)
    assert outputs(done[3])[:2] == (ScalarValue(value=96), ScalarValue(value=96))
    forget(executor, *done)


def test_a_link_may_come_when_the_batch_before_it_was_reported(pair: Pair) -> None:
    executor = pair[0]
    first = run_batch("empty_image", picture())
    made = executor.run(first)
    done = executor.run(after(first, "image_scale", scaled("a", awaited("image"), 32)))
    assert isinstance(done.results[0], CallDone)
    forget(executor, made, done)


def test_a_recall_brings_the_rest_back_and_leaves_what_runs_alone(pair: Pair) -> None:
    executor = pair[0]
    image, running = make_image(executor), held_up()
    second = after(running, "image_scale", scaled("a", awaited("held"), 32))
    third = after(second, "image_scale", scaled("b", awaited("a"), 32))
    for batch in (running, second, third):
        executor.send(batch)
    executor.held_bytes()  # after two heartbeats the main thread is at it
    executor.send(RecallBatches(batch_ids=(running.batch_id, second.batch_id, third.batch_id)))
    go_on(executor, running, image)
    done = reports(executor, running, second, third)
    assert [is_cancelled(report) for report in done] == [False, True, True]
    assert done[1].run_s == 0.0
    fresh = executor.run(run_batch("image_scale", scaled("c", image, 32)))
    assert isinstance(fresh.results[0], CallDone)
    forget(executor, *done, fresh, also=[image])


def test_recalling_what_was_reported_is_no_error(pair: Pair) -> None:
    executor = pair[0]
    made = executor.run(run_batch("empty_image", picture()))
    executor.send(RecallBatches(batch_ids=(made.batch_id,)))
    again = executor.run(run_batch("empty_image", picture()))
    assert isinstance(again.results[0], CallDone)
    forget(executor, made, again)


def test_after_a_failing_call_the_rest_comes_back(pair: Pair) -> None:
    executor = pair[0]
    bad = node_call("bad", width=-8, height=64, batch_size=1)
    good = node_call("good", width=64, height=64, batch_size=1)
    first = run_batch("empty_latent", good, bad)
    upscale = node_call(
        "up",
        inputs={"samples": awaited("good")},
        upscale_method="nearest-exact",
        width=128,
        height=128,
        crop="disabled",
    )
    second = after(first, "latent_upscale", upscale)
    third = after(second, "empty_image", picture())
    for batch in (first, second, third):
        executor.send(batch)
    done = reports(executor, first, second, third)
    assert [type(result) for result in done[0].results] == [CallDone, CallFailed]
    assert [is_cancelled(report) for report in done[1:]] == [True, True]
    forget(executor, *done)


def test_cancelling_one_link_stops_it_and_what_comes_after(pair: Pair) -> None:
    executor = pair[0]
    image, running = make_image(executor), held_up()
    second = after(running, "image_scale", scaled("a", image, 32))
    third = after(second, "image_scale", scaled("b", image, 32))
    for batch in (running, second, third):
        executor.send(batch)
    executor.send(CancelBatch(batch_id=second.batch_id))
    go_on(executor, running, image)
    done = reports(executor, running, second, third)
    assert [is_cancelled(report) for report in done] == [False, True, True]
    forget(executor, *done, also=[image])


def test_cancelling_what_runs_brings_the_rest_back(pair: Pair) -> None:
    executor = pair[0]
    image, running = make_image(executor), held_up()
    second = after(running, "image_scale", scaled("a", image, 32))
    for batch in (running, second):
        executor.send(batch)
    executor.send(CancelBatch(batch_id=running.batch_id))
    assert all(map(is_cancelled, reports(executor, running, second)))
    forget(executor, also=[image])


def test_a_link_whose_input_is_not_there_comes_back_at_once(pair: Pair) -> None:
    executor = pair[0]
    first = run_batch("empty_image", picture())
    second = after(first, "image_scale", scaled("a", awaited("never"), 32))
    for batch in (first, second):
        executor.send(batch)
    done = reports(executor, first, second)
    assert [is_cancelled(report) for report in done] == [False, True]
    unknown = msgspec.structs.replace(run_batch("empty_image", picture()), after=second.batch_id)
    assert is_cancelled(executor.run(unknown))
    forget(executor, *done)
