"""Inputs that come while a batch runs: between threads, and between real processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
import torch
import zmq
from kit.executors import ExecutorProcess, node_call, outputs, run_batch, tree
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.graph_import.ir import NodeId
from nodeloom.runtime.data_plane.zmq import TensorFetcher
from nodeloom.runtime.errors import Cancelled
from nodeloom.runtime.executor import deferred
from nodeloom.runtime.executor.deferred import Arrivals
from nodeloom.runtime.ids import BatchId, RequestId
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.protocol import (
    AwaitedValue,
    BatchDone,
    CallCancelled,
    CallLost,
    CancelBatch,
    Heartbeat,
    InputReady,
    ReleaseTensors,
    RunBatch,
    ScalarValue,
    TreeValue,
    ValueRef,
)
from nodeloom.runtime.values import SamplingRun, unflatten

Pair = tuple[ExecutorProcess, ExecutorProcess]
Start = Callable[..., ExecutorProcess]
AWAITED = AwaitedValue(request_id=RequestId("r"), node_id=NodeId("control"), port=0)
MARKER = "m"
SIDE = 256  # pixels


def go_on() -> None:
    """A batch that nobody cancels."""


# between threads --------------------------------------------------------------------------------


def test_what_is_there_is_taken_without_waiting() -> None:
    arrivals = Arrivals()
    arrivals.put(AWAITED, ScalarValue(value=3))
    assert arrivals.take(AWAITED, go_on) == ScalarValue(value=3)
    assert arrivals.take(AWAITED, go_on) == ScalarValue(value=3)
    assert arrivals.waited_s < 1.0


def test_what_comes_later_is_waited_for_and_the_time_is_counted() -> None:
    arrivals, looks = Arrivals(), threading.Semaphore(0)

    def put_after_three_looks() -> None:
        for _ in range(3):
            looks.acquire()
        arrivals.put(AWAITED, ScalarValue(value=3))

    thread = threading.Thread(target=put_after_three_looks)
    thread.start()
    assert arrivals.take(AWAITED, looks.release) == ScalarValue(value=3)  # type: ignore[arg-type]
    thread.join()
    assert arrivals.waited_s > 2 * deferred.LOOK_S * 0.9


def test_who_waits_hears_of_a_cancel() -> None:
    def cancelled() -> None:
        raise Cancelled("stop")

    with pytest.raises(Cancelled, match="stop"):
        Arrivals().take(AWAITED, cancelled)


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "MAX_WAIT_S", 0.1)
    with pytest.raises(Cancelled, match="control did not come"):
        Arrivals().take(AWAITED, go_on)


# between processes ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def controlnet(tmp_path_factory: pytest.TempPathFactory) -> ModelRef:
    path = tmp_path_factory.mktemp("controlnet") / "tiny.safetensors"
    write_tiny_controlnet(path)
    key = ModelKey(role=Role.CONTROLNET, family="sd15", file=identify(path), dtype="float32")
    return ModelRef(key=key)


class Step:
    """One steered evaluation: the denoiser's batch for `home`, the ControlNet's for any."""

    def __init__(
        self, home: ExecutorProcess, refs: dict[Role, ModelRef], control: ModelRef
    ) -> None:
        self.home = home
        self.denoiser, self.control = refs[Role.DENOISER], control
        self.held: list[TreeValue] = []
        text = run_batch("text_encode", node_call("t", text="a cat"), model=refs[Role.TEXT_ENCODER])
        marked = {"conditioning": self.made_by(home, text)}
        steered = self.made_by(
            home, run_batch("cond_control", node_call("s", inputs=marked, marker=MARKER))
        )
        latent = self.made_by(
            home, run_batch("empty_latent", node_call("l", width=SIDE, height=SIDE, batch_size=1))
        )
        run = {"sampler": "euler", "sigmas": (14.0, 5.0, 0.0), "family": "sd15"}
        begin = node_call("b", inputs={"latent": latent}, seed=1, add_noise=True, **run)
        state = self.made_by(home, run_batch("sample_begin", begin))
        image = node_call("h", width=SIDE, height=SIDE, batch_size=1, color=0x804020)
        self.hint = self.made_by(home, run_batch("empty_image", image))
        self.inputs = {"state": state, "positive": steered, "negative": steered}
        self.params = {**run, "cfg": 5.0, "evaluation": 0}

    def made_by(self, executor: ExecutorProcess, batch: RunBatch) -> TreeValue:
        value = tree(outputs(executor.run(batch))[0])
        self.held.append(value)
        return value

    def control_batch(self) -> RunBatch:
        inputs = {**self.inputs, "hint": self.hint}
        call = node_call("control", inputs=inputs, strength=0.9, marker=MARKER, **self.params)
        return run_batch("controlnet", call, model=self.control)

    def denoise_batch(self, residuals: ValueRef | AwaitedValue) -> RunBatch:
        call = node_call(
            "denoise",
            inputs={**self.inputs, "residuals_0": residuals},
            deferred=("residuals_0",),
            marker_0=MARKER,
            **self.params,
        )
        return run_batch("denoise", call, model=self.denoiser)

    def release(self, *executors: ExecutorProcess) -> None:
        keys = tuple(ref.key for value in self.held for ref in value.tensors)
        for executor in executors:
            executor.send(ReleaseTensors(keys=keys))


@pytest.fixture
def step(pair: Pair, refs: dict[Role, ModelRef], controlnet: ModelRef) -> Iterator[Step]:
    step = Step(pair[0], refs, controlnet)
    yield step
    step.release(*pair)


def told(batch: RunBatch, value: ValueRef) -> InputReady:
    return InputReady(batch_id=batch.batch_id, awaited=AWAITED, value=value)


def latents(value: TreeValue, context: zmq.Context[zmq.Socket[bytes]]) -> torch.Tensor:
    fetcher = TensorFetcher(context)
    run = unflatten(value.tree, [fetcher.fetch(ref) for ref in value.tensors])
    fetcher.close()
    assert isinstance(run, SamplingRun)
    assert isinstance(run.state.x, torch.Tensor)
    return run.state.x


def test_residuals_that_come_late_give_the_same_bits(
    step: Step, pair: Pair, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    home, other = pair
    residuals = step.made_by(other, step.control_batch())
    early = step.made_by(home, step.denoise_batch(residuals))
    batch = step.denoise_batch(AWAITED)
    home.send(batch)
    home.receive(Heartbeat)
    home.receive(Heartbeat)  # half a second in which it could not go on
    home.send(told(batch, residuals))
    done = home.receive(BatchDone)
    assert 0.2 < done.waited_s < done.run_s
    assert done.worked_s is not None
    assert 0.0 < done.worked_s < done.run_s - 0.2  # waiting is no work
    late = tree(outputs(done)[0])
    step.held.append(late)
    assert torch.equal(latents(early, context), latents(late, context))


def test_both_work_at_once(step: Step, pair: Pair) -> None:
    home, other = pair
    for executor, batch in (
        (other, step.control_batch()),
        (home, step.denoise_batch(step.made_by(other, step.control_batch()))),
    ):
        step.made_by(executor, batch)  # what is first done takes longer
    at_once_s = []
    for _ in range(5):
        denoise, start_s = step.denoise_batch(AWAITED), time.monotonic()
        home.send(denoise)
        made = other.run(step.control_batch())
        residuals = tree(outputs(made)[0])
        home.send(told(denoise, residuals))
        done = home.receive(BatchDone)
        wall_s = time.monotonic() - start_s
        at_once_s.append(done.run_s - done.waited_s + made.run_s - wall_s)
        step.held += [residuals, tree(outputs(done)[0])]
    assert max(at_once_s) > 0.0


def test_a_batch_that_waits_is_cancelled_at_once(step: Step, pair: Pair) -> None:
    home = pair[0]
    batch = step.denoise_batch(AWAITED)
    home.send(batch)
    home.receive(Heartbeat)
    home.send(CancelBatch(batch_id=batch.batch_id))
    assert home.receive(BatchDone).results == (CallCancelled(),)
    residuals = step.made_by(pair[1], step.control_batch())
    step.made_by(home, step.denoise_batch(residuals))  # it works as before


def test_a_late_value_whose_holder_is_gone_is_lost(step: Step, pair: Pair, start: Start) -> None:
    home, doomed = pair[0], start("doomed")
    residuals = tree(outputs(doomed.run(step.control_batch()))[0])
    doomed.kill()
    batch = step.denoise_batch(AWAITED)
    home.send(batch)
    home.send(told(batch, residuals))
    (result,) = home.receive(BatchDone).results
    assert isinstance(result, CallLost)
    assert set(result.missing) <= {ref.key for ref in residuals.tensors}


def test_a_value_for_a_batch_that_is_done_is_ignored(pair: Pair) -> None:
    image = node_call("h", width=8, height=8, batch_size=1, color=0)
    batch = run_batch("empty_image", image)
    done = pair[0].run(batch)
    ready = told(batch, ScalarValue(value=1))
    pair[0].send(ready)
    pair[0].send(msgspec.structs.replace(ready, batch_id=BatchId(10**6)))
    again = pair[0].run(run_batch("empty_image", image))
    keys = [ref.key for one in (done, again) for ref in tree(outputs(one)[0]).tensors]
    pair[0].send(ReleaseTensors(keys=tuple(keys)))
