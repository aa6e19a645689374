"""Bodies here are functions of the test: what a body may do wrong, the real ones don't."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from kit.executors import node_call, outputs, run_batch, tree
from nodeloom.runtime.config import ExecutorSettings
from nodeloom.runtime.data_plane.local import LocalPlane
from nodeloom.runtime.errors import Cancelled, NodeFailed, OutOfMemory
from nodeloom.runtime.executor.batch_runner import BatchRunner
from nodeloom.runtime.executor.error_report import MAX_TEXT
from nodeloom.runtime.executor.model_cache import ModelCache
from nodeloom.runtime.ids import ExecutorId
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.ops.base import OpBody, OpCall, OpContext, OpResult
from nodeloom.runtime.protocol import (
    BatchDone,
    CallCancelled,
    CallDone,
    CallFailed,
    CallLost,
    NodeCall,
    ScalarValue,
    TreeValue,
)
from nodeloom.runtime.values import CondEntry, Conditioning, Latent, Value, flatten

BIG = (1, 4, 32, 32)


@pytest.fixture
def plane() -> LocalPlane:
    return LocalPlane(ExecutorId("e"), "i", "ipc://none")


class Bench:
    """Runs a body on calls as the executor's main thread does."""

    def __init__(self, plane: LocalPlane, folder: Path) -> None:
        self.plane = plane
        self.settings = ExecutorSettings(
            executor=plane.executor,
            incarnation=plane.incarnation,
            coordinator_endpoint="ipc://none",
            data_endpoint=plane.endpoint,
            device="cpu",
            num_threads=1,
            is_strict=True,
            model_memory_bytes=1,
            input_directory=folder,
            output_directory=folder,
            temp_directory=folder,
            saves_directory=folder,
            is_metadata_disabled=False,
            preview_size=64,
            preview_folders=(),
            log_level="INFO",
        )
        self.is_cancelled = False

    def run(self, body: OpBody, *calls: NodeCall) -> BatchDone:
        models = ModelCache(1, "cpu", build)
        runner = BatchRunner(self.settings, self.plane, models, lambda op: body)
        return runner.run(run_batch("test", *calls), self.check_cancelled)

    def check_cancelled(self) -> None:
        if self.is_cancelled:
            raise Cancelled("cancelled")

    def put(self, value: Value) -> TreeValue:
        text, tensors = flatten(value)
        return TreeValue(tree=text, tensors=tuple(self.plane.put(tensor) for tensor in tensors))


@pytest.fixture
def bench(plane: LocalPlane, tmp_path: Path) -> Bench:
    return Bench(plane, tmp_path)


def giving(*values: Value) -> OpBody:
    """A body that gives these outputs for every call."""
    return lambda context, calls: [OpResult(outputs=values) for _ in calls]


def test_params_inputs_and_hidden_reach_the_body_under_their_names(bench: Bench) -> None:
    seen: list[OpCall] = []

    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        seen.extend(calls)
        assert torch.is_inference_mode_enabled()
        assert (context.is_strict, context.model) == (True, None)
        return [OpResult(outputs=(), ui={"images": [{"filename": "ä"}]}, preview=b"jpeg")]

    latent = Latent(samples=torch.ones(BIG))
    call = node_call(
        "n",
        num_outputs=0,
        inputs={"latent": bench.put(latent), "steps": ScalarValue(value=4)},
        hidden={"prompt": "{}"},
        sigmas=(1.0, 0.0),
    )
    done = bench.run(body, call)
    assert done.results == (
        CallDone(outputs=(), ui='{"images":[{"filename":"ä"}]}', preview=b"jpeg"),
    )
    (given,) = seen
    assert given.args["sigmas"] == (1.0, 0.0)
    assert given.args["steps"] == 4
    assert isinstance(given.args["latent"], Latent)
    assert torch.equal(given.args["latent"].samples, latent.samples)
    assert given.hidden == {"prompt": "{}"}


def test_a_deferred_input_is_a_function_that_gives_the_same_value_twice(bench: Bench) -> None:
    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        fetch = calls[0].args["residuals"]
        assert callable(fetch)
        assert fetch() is fetch()
        return [OpResult(outputs=(fetch().samples.sum().item(),))]

    value = bench.put(Latent(samples=torch.ones(BIG)))
    done = bench.run(body, node_call("n", inputs={"residuals": value}, deferred=("residuals",)))
    assert outputs(done) == (ScalarValue(value=4096.0),)


def test_a_lost_deferred_input_loses_its_call_only(bench: Bench) -> None:
    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        return [OpResult(outputs=(call.args["x"]().sum().item(),)) for call in calls]  # type: ignore[operator]

    kept, gone = bench.put(torch.ones(BIG)), bench.put(torch.ones(BIG))
    key = gone.tensors[0].key
    bench.plane.release([key])
    calls = [
        node_call(str(i), inputs={"x": v}, deferred=("x",)) for i, v in enumerate((kept, gone))
    ]
    done = bench.run(body, *calls)
    assert outputs(done, 0) == (ScalarValue(value=4096.0),)
    assert done.results[1] == CallLost(missing=(key,))


def test_all_missing_tensors_of_a_call_are_named(bench: Bench) -> None:
    entry = CondEntry(cond=torch.ones(BIG), pooled=torch.ones(BIG))
    value = bench.put(Conditioning(entries=(entry, entry)))
    bench.plane.release([value.tensors[0].key, value.tensors[3].key])
    done = bench.run(giving(1), node_call("n", inputs={"positive": value}))
    lost = tuple(value.tensors[index].key for index in (0, 3))
    assert done.results == (CallLost(missing=lost),)


def test_outputs_come_back_as_they_were_put(bench: Bench, plane: LocalPlane) -> None:
    done = bench.run(
        giving(Latent(samples=torch.ones(BIG)), 7, torch.zeros(BIG)), node_call("n", num_outputs=3)
    )
    latent, number, image = outputs(done)
    assert number == ScalarValue(value=7)
    assert plane.get(tree(latent).tensors[0]).sum() == 4096
    assert plane.get(tree(image).tensors[0]).sum() == 0
    assert plane.held_bytes == 2 * 4096 * 4


@pytest.mark.parametrize(
    "body",
    [
        giving(torch.ones(BIG)),
        giving(torch.ones(BIG), [1]),  # type: ignore[arg-type]
        giving(torch.ones(BIG), torch.ones(BIG).to(torch.float8_e4m3fnuz)),
        lambda context, calls: [],
        lambda context, calls: [
            OpResult(outputs=(torch.ones(BIG), 1), ui={"x": torch.ones(1)}) for _ in calls
        ],
    ],
    ids=["too-few-outputs", "a-list", "an-odd-dtype", "no-results", "ui-is-no-json"],
)
def test_outputs_that_cannot_be_carried_fail_the_call_and_hold_nothing(
    bench: Bench, body: OpBody
) -> None:
    done = bench.run(body, node_call("n", num_outputs=2))
    assert isinstance(done.results[0], CallFailed)
    assert bench.plane.held_bytes == 0


def test_each_call_of_a_failed_batch_gets_its_own_attempt(bench: Bench) -> None:
    attempts: list[list[str]] = []

    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        attempts.append([call.node_id for call in calls])
        if any(call.args["bad"] for call in calls):
            raise ZeroDivisionError("by zero")
        return [OpResult(outputs=(1,)) for _ in calls]

    done = bench.run(body, *(node_call(name, bad=name == "b") for name in "abc"))
    assert attempts == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert [type(result) for result in done.results] == [CallDone, CallFailed, CallDone]


def test_the_report_tells_type_message_inputs_and_where(bench: Bench) -> None:
    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        raise ZeroDivisionError("by zero")

    call = node_call(
        "n",
        inputs={"latent": bench.put(Latent(samples=torch.ones(1, 4, 8, 8)))},
        text="x" * (MAX_TEXT + 1),
        sigmas=(1.5, 0.0),
        flag=True,
    )
    (result,) = bench.run(body, call).results
    assert isinstance(result, CallFailed)
    error = result.error
    assert (error.exception_type, error.message) == ("ZeroDivisionError", "by zero")
    assert error.code == "node_failed"
    assert error.current_inputs == {
        "text": ["x" * MAX_TEXT],
        "sigmas": [1.5, 0.0],
        "flag": [True],
        "latent": ["Latent([1, 4, 8, 8])"],
    }
    assert Path(__file__).name in error.traceback[-1]


@pytest.mark.parametrize(
    ("problem", "exception_type"),
    [
        (MemoryError("much"), "MemoryError"),
        (OutOfMemory("budget"), "nodeloom.runtime.errors.OutOfMemory"),
        (torch.OutOfMemoryError("CUDA"), "torch.OutOfMemoryError"),
    ],
    ids=["python", "budget", "torch"],
)
def test_out_of_memory_has_its_own_code(
    bench: Bench, problem: Exception, exception_type: str
) -> None:
    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        raise problem

    (result,) = bench.run(body, node_call("n")).results
    assert isinstance(result, CallFailed)
    assert (result.error.code, result.error.exception_type) == ("out_of_memory", exception_type)


def test_an_allocation_that_torch_cannot_make_is_out_of_memory(bench: Bench) -> None:
    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        return [OpResult(outputs=(torch.empty(2**55, dtype=torch.uint8),))]

    (result,) = bench.run(body, node_call("n")).results
    assert isinstance(result, CallFailed)
    assert result.error.code == "out_of_memory"


def test_cancelling_stops_before_between_and_after_bodies(bench: Bench) -> None:
    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        bench.is_cancelled = True
        if calls[0].args["asks"]:
            context.check_cancelled()
        return [OpResult(outputs=(torch.ones(BIG),)) for _ in calls]

    for asks in (True, False):
        bench.is_cancelled = False
        done = bench.run(body, node_call("a", asks=asks), node_call("b", asks=asks))
        assert done.results == (CallCancelled(), CallCancelled())
    done = bench.run(body, node_call("a", asks=False))
    assert done.results == (CallCancelled(),)
    assert bench.plane.held_bytes == 0


def test_a_broken_tree_fails_its_call_only(bench: Bench) -> None:
    value = bench.put(torch.ones(BIG))
    calls = [
        node_call(str(index), inputs={"x": msgspec.structs.replace(value, tree=text)})
        for index, text in enumerate(
            (value.tree, b"\xc1", b"\x81\xa1t\x05", b"\x82\xa1s\xa1X\xa1f\x80")
        )
    ]
    done = bench.run(giving(1), *calls)
    assert [type(result) for result in done.results] == [CallDone] + [CallFailed] * 3


def test_a_report_that_is_not_sent_gives_its_tensors_back(bench: Bench) -> None:
    models = ModelCache(1, "cpu", build)
    runner = BatchRunner(bench.settings, bench.plane, models, lambda op: giving(torch.ones(BIG)))
    done = runner.run(run_batch("test", node_call("n")), bench.check_cancelled)
    assert bench.plane.held_bytes > 0
    runner.discard(done)
    assert bench.plane.held_bytes == 0


def test_a_body_that_knows_its_error_names_its_code(bench: Bench) -> None:
    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        raise NodeFailed("this can't be")

    (result,) = bench.run(body, node_call("n")).results
    assert isinstance(result, CallFailed)
    assert result.error.exception_type == "nodeloom.runtime.errors.NodeFailed"
