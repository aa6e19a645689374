"""Real executor processes: their life, their heartbeats, tensors that go between them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import kit.executors
import torch
import zmq
from kit.executors import (
    LIMIT_S,
    ExecutorProcess,
    node_call,
    outputs,
    run_batch,
    tree,
)
from nodeloom.graph_import.handles import ModelRef, Role
from nodeloom.runtime.data_plane.zmq import TensorFetcher
from nodeloom.runtime.protocol import (
    PROTOCOL_VERSION,
    BatchDone,
    CallCancelled,
    CallDone,
    CallFailed,
    CallLost,
    CancelBatch,
    DropModels,
    Heartbeat,
    NodeCall,
    ReleaseTensors,
    RunBatch,
    ScalarValue,
    Shutdown,
    TreeValue,
)
from nodeloom.runtime.wire import HEADER

Pair = tuple[ExecutorProcess, ExecutorProcess]
Start = Callable[..., ExecutorProcess]


def make_image(executor: ExecutorProcess, side: int) -> TreeValue:
    call = node_call("image", width=side, height=side, batch_size=1, color=0x804020)
    return tree(outputs(executor.run(run_batch("empty_image", call)))[0])


def release(executor: ExecutorProcess, *values: TreeValue) -> None:
    keys = tuple(ref.key for value in values for ref in value.tensors)
    executor.send(ReleaseTensors(keys=keys))


def endless_batch(image: TreeValue) -> RunBatch:
    """Minutes of work whose results are small."""
    return run_batch("image_scale", *(shrink(f"n{index}", image) for index in range(5000)))


def shrink(node_id: str, image: TreeValue) -> NodeCall:
    return node_call(
        node_id,
        inputs={"image": image},
        upscale_method="lanczos",
        width=16,
        height=16,
        crop="disabled",
    )


def test_hello_says_who_is_there(pair: Pair) -> None:
    hello = pair[0].hello
    assert hello.executor == "e0"
    assert hello.incarnation == pair[0].settings.incarnation
    assert hello.protocol_version == PROTOCOL_VERSION
    assert hello.pid == pair[0].process.pid
    assert (hello.device, hello.num_threads) == ("cpu", 1)


def test_scalars_come_back_in_the_report(pair: Pair) -> None:
    image = make_image(pair[0], 96)
    done = pair[0].run(
        run_batch("image_size", node_call("size", num_outputs=3, inputs={"image": image}))
    )
    assert outputs(done) == (ScalarValue(value=96), ScalarValue(value=96), ScalarValue(value=1))
    assert done.run_s > 0
    release(pair[0], image)
    assert pair[0].held_bytes() == 0


def test_a_tensor_is_fetched_by_another_executor_and_released_everywhere(pair: Pair) -> None:
    producer, consumer = pair
    image = make_image(producer, 64)
    num_bytes = 64 * 64 * 3 * 4
    done = consumer.run(
        run_batch("image_size", node_call("size", num_outputs=3, inputs={"image": image}))
    )
    assert outputs(done)[0] == ScalarValue(value=64)
    assert (producer.held_bytes(), consumer.held_bytes()) == (num_bytes, num_bytes)
    release(producer, image)
    release(consumer, image)
    assert (producer.held_bytes(), consumer.held_bytes()) == (0, 0)


def test_heartbeats_go_on_while_a_batch_runs_and_cancelling_stops_it(pair: Pair) -> None:
    executor = pair[0]
    image = make_image(executor, 1024)
    batch = endless_batch(image)
    executor.send(batch)
    waiting = run_batch("image_size", node_call("s", num_outputs=3, inputs={"image": image}))
    executor.send(waiting)
    for _ in range(3):
        assert executor.receive(Heartbeat).held_bytes > 0
    executor.send(CancelBatch(batch_id=waiting.batch_id))
    executor.send(CancelBatch(batch_id=batch.batch_id))
    for cancelled in (batch, waiting):
        done = executor.receive(BatchDone)
        assert done.batch_id == cancelled.batch_id
        assert done.results == (CallCancelled(),) * len(cancelled.calls)
    release(executor, image)
    assert executor.held_bytes() == 0


def test_cancelling_an_unknown_batch_is_no_error(pair: Pair) -> None:
    done = pair[0].run(run_batch("empty_latent", latent_call("a")))
    pair[0].send(CancelBatch(batch_id=done.batch_id))
    outputs(pair[0].run(run_batch("empty_latent", latent_call("a"))))


def latent_call(node_id: str, width: int = 64) -> NodeCall:
    return node_call(node_id, width=width, height=64, batch_size=1)


def test_tensors_are_served_while_a_batch_runs(pair: Pair) -> None:
    producer, consumer = pair
    image = make_image(producer, 1024)
    batch = endless_batch(image)
    producer.send(batch)
    done = consumer.run(run_batch("image_scale", shrink("n", image)))
    assert isinstance(done.results[0], CallDone)
    producer.send(CancelBatch(batch_id=batch.batch_id))
    producer.receive(BatchDone)
    release(producer, image)
    release(consumer, image)
    assert (producer.held_bytes(), consumer.held_bytes()) == (0, 0)


def test_only_the_guilty_call_of_a_batch_fails(pair: Pair) -> None:
    done = pair[0].run(
        run_batch("empty_latent", latent_call("a"), latent_call("b", width=-8), latent_call("c"))
    )
    assert [type(result) for result in done.results] == [CallDone, CallFailed, CallDone]
    failed = done.results[1]
    assert isinstance(failed, CallFailed)
    assert failed.error.exception_type == "nodeloom.runtime.errors.NodeFailed"
    assert failed.error.code == "node_failed"
    assert failed.error.current_inputs == {"width": [-8], "height": [64], "batch_size": [1]}
    assert any("_zeros" in line for line in failed.error.traceback)


def test_an_unknown_op_fails_its_calls_only(pair: Pair) -> None:
    done = pair[0].run(run_batch("no_such_op", node_call("a"), node_call("b")))
    assert all(isinstance(result, CallFailed) for result in done.results)
    outputs(pair[0].run(run_batch("empty_latent", latent_call("a"))))


def test_malformed_messages_are_logged_and_ignored(pair: Pair) -> None:
    executor = pair[1]
    for frames in ([b"nonsense"], [HEADER, b"\xc1"], [b"nodeloom/999", b""], [HEADER, b"", b""]):
        executor.send_frames(frames)
    assert isinstance(
        executor.run(run_batch("empty_latent", latent_call("a"))).results[0], CallDone
    )
    refused = [line for line in executor.log_lines() if line["event"] == "message_refused"]
    assert len(refused) == 4
    assert {line["component"] for line in refused} == {"e1"}


def test_a_killed_producers_tensors_are_lost_and_the_rest_of_the_batch_runs(
    start: Start, pair: Pair
) -> None:
    producer, consumer = start("doomed"), pair[1]
    own, fetched, unfetched = (make_image(e, 64) for e in (consumer, producer, producer))
    outputs(consumer.run(run_batch("image_scale", shrink("x", fetched))))
    producer.kill()
    done = consumer.run(
        run_batch("image_scale", shrink("a", own), shrink("b", unfetched), shrink("c", fetched))
    )
    assert [type(result) for result in done.results] == [CallDone, CallLost, CallDone]
    assert done.results[1] == CallLost(missing=tuple(ref.key for ref in unfetched.tensors))
    release(consumer, own, fetched)
    assert consumer.held_bytes() == 0


def test_released_tensors_are_lost_and_named(pair: Pair) -> None:
    producer, consumer = pair
    image = make_image(producer, 64)
    release(producer, image)
    for executor in pair:
        done = executor.run(
            run_batch("image_size", node_call("s", num_outputs=3, inputs={"image": image}))
        )
        assert done.results == (CallLost(missing=(image.tensors[0].key,)),)
    assert consumer.held_bytes() == 0


def test_models_are_loaded_once_and_dropped_on_demand(
    pair: Pair, refs: dict[Role, ModelRef]
) -> None:
    executor, ref = pair[0], refs[Role.TEXT_ENCODER]
    executor.send(DropModels())  # what another test may have loaded
    first = executor.run(run_batch("text_encode", node_call("a", text="a cat"), model=ref))
    assert [loaded.key for loaded in first.loaded] == [ref.key]
    assert first.loaded[0].num_bytes > 0
    second = executor.run(run_batch("text_encode", node_call("b", text="a cat"), model=ref))
    assert second.loaded == ()
    assert second.resident == (ref.key,)
    executor.send(DropModels())
    third = executor.run(run_batch("empty_latent", latent_call("a")))
    assert third.resident == ()
    release(executor, *(tree(outputs(done)[0]) for done in (first, second)))
    assert executor.held_bytes() == 0


def test_shutdown_cancels_and_ends_the_process(start: Start) -> None:
    executor = start()
    image = make_image(executor, 1024)
    executor.send(endless_batch(image))
    executor.receive(Heartbeat)
    executor.send(Shutdown())
    assert executor.receive(BatchDone).results[0] == CallCancelled()
    assert executor.process.wait(timeout=LIMIT_S) == 0


def test_sigterm_ends_the_process_cleanly_and_sigint_is_ignored(start: Start) -> None:
    executor = start()
    executor.process.send_signal(signal.SIGINT)
    outputs(executor.run(run_batch("empty_latent", latent_call("a"))))
    executor.process.send_signal(signal.SIGTERM)
    assert executor.process.wait(timeout=LIMIT_S) == 0
    assert executor.log_text() == ""


def test_a_closed_stdin_ends_the_process_even_in_mid_batch(start: Start) -> None:
    executor = start()
    executor.send(endless_batch(make_image(executor, 1024)))
    executor.receive(Heartbeat)
    assert executor.close() == 0
    assert executor.log_lines()[-1]["event"] == "executor_orphaned"
    assert not Path(executor.settings.data_endpoint.removeprefix("ipc://")).exists()


def test_a_killed_parent_takes_its_executor_along(tmp_path: Path) -> None:
    environment = dict(os.environ) | {"PYTHONPATH": str(Path(kit.executors.__file__).parents[1])}
    parent = subprocess.Popen(
        [sys.executable, kit.executors.__file__, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert parent.stdout is not None
    descriptor = os.pidfd_open(int(parent.stdout.readline()))
    watcher = select.poll()
    watcher.register(descriptor, select.POLLIN)
    assert watcher.poll(0) == []
    parent.kill()
    parent.communicate(timeout=LIMIT_S)
    assert watcher.poll(int(LIMIT_S * 1000)) != []
    os.close(descriptor)


def test_a_strict_executor_gives_the_same_bits_whether_inputs_are_its_own_or_fetched(
    start: Start, pair: Pair, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    strict = start("strict", is_strict=True)
    results = []
    fetcher = TensorFetcher(context)
    for maker in (strict, pair[0]):
        call = node_call(
            "n",
            inputs={"image": make_image(maker, 128)},
            upscale_method="bicubic",
            width=100,
            height=90,
            crop="disabled",
        )
        value = tree(outputs(strict.run(run_batch("image_scale", call)))[0])
        results.append(fetcher.fetch(value.tensors[0]))
        release(pair[0], tree(call.inputs[0].value))
    assert torch.equal(*results)
    fetcher.close()
