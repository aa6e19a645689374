"""Deferred inputs: a denoiser runs beside its ControlNets, whatever happens to these."""

from __future__ import annotations

import pytest
from kit.graphs import chain, graph, model, node
from kit.plant import Plant, fail, names, resets, sends
from nodeloom.graph_import.handles import ModelRef, Role
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.types import INT, LATENT, RESIDUALS, SAMPLER_STATE
from nodeloom.runtime.ids import ExecutorId, RequestId
from nodeloom.runtime.protocol import (
    AwaitedValue,
    CallCancelled,
    CallLost,
    CallResult,
    NodeCall,
    ScalarValue,
    TreeValue,
)
from nodeloom.runtime.scheduler.actions import (
    AnyAction,
    CancelSent,
    NodeFinished,
    Outcome,
    Provide,
    SendBatch,
)
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig

DENOISER = model("sd15", size_bytes=10**8)


def control(index: int = 0, *, size_bytes: int = 10**7) -> ModelRef:
    return model(f"control{index}", Role.CONTROLNET, size_bytes=size_bytes)


def steered(num_steps: int, *controls: ModelRef) -> Graph:
    """Steps `d0`, `d1` ..., each with its ControlNets `c0.0`, `c0.1` ..."""
    nodes = [node("begin", "sample_begin", gives=[SAMPLER_STATE])]
    state = "begin"
    for step in range(num_steps):
        reads = {"state": state}
        for index, ref in enumerate(controls):
            name = f"c{step}.{index}"
            nodes.append(node(name, "controlnet", ref=ref, reads=[state], gives=[RESIDUALS]))
            reads[f"residuals_{index}"] = name
        late = [name for name in reads if name != "state"]
        nodes.append(
            node(
                f"d{step}",
                "denoise",
                ref=DENOISER,
                reads=reads,
                gives=[SAMPLER_STATE],
                deferred=late,
            )
        )
        state = f"d{step}"
    return graph(*nodes)


def provided(actions: list[AnyAction]) -> list[tuple[str, str, str]]:
    return [
        (a.executor, a.awaited.request_id, a.awaited.node_id)
        for a in actions
        if isinstance(a, Provide)
    ]


def cancelled(actions: list[AnyAction]) -> list[str]:
    return [action.executor for action in actions if isinstance(action, CancelSent)]


def awaited(actions: list[AnyAction]) -> list[str]:
    """What sent batches wait for."""
    values = [
        item.value
        for action in actions
        if isinstance(action, SendBatch)
        for call in action.batch.calls
        for item in call.inputs
    ]
    return [value.node_id for value in values if isinstance(value, AwaitedValue)]


def settled(plant: Plant, *executors: str) -> list[AnyAction]:
    """Request `a` of 3 steps, after its first: models are where they are, one step is under way."""
    for name in executors:
        plant.join(name)
    plant.arrive("a", steered(3, control()))
    plant.report("gpu0")
    actions: list[AnyAction] = []
    for _ in range(2):
        actions = plant.report(plant.busy()[0])
    return actions


def test_a_denoiser_starts_while_its_controlnet_runs_elsewhere(plant: Plant) -> None:
    actions = settled(plant, "gpu0", "gpu1")
    both = {plant.running("gpu0")[0], plant.running("gpu1")[0]}
    assert both == {"a/c1.0", "a/d1"}
    assert awaited(actions) == ["c1.0"]
    assert len(plant.waiting()) == 1


def test_the_value_is_told_to_the_executor_that_waits_for_it(plant: Plant) -> None:
    settled(plant, "gpu0", "gpu1")
    (home,) = plant.waiting()
    (maker,) = plant.busy()
    actions = plant.report(maker)
    assert provided(actions) == [(home, "a", "c1.0")]
    (told,) = [action for action in actions if isinstance(action, Provide)]
    assert isinstance(told.value, TreeValue)
    assert told.batch_id == plant.workers[ExecutorId(home)].batch.batch_id  # type: ignore[union-attr]
    assert plant.busy() == [home]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_scalar_is_told_as_well(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    nodes = [
        node("size", "op_a", gives=[INT]),
        node("late", "op_b", reads=["size"], deferred=True),
    ]
    plant.arrive("a", graph(*nodes))
    (told,) = [action for action in plant.report("gpu0") if isinstance(action, Provide)]
    assert told.value == ScalarValue(value=1)
    plant.run_all()
    plant.assert_empty()


def test_two_calls_of_a_batch_that_wait_for_one_value_are_told_once(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    nodes = [node("x", "op_x")]
    nodes += [node(f"y{i}", "denoise", ref=DENOISER, reads=["x"], deferred=True) for i in range(2)]
    plant.arrive("a", graph(*nodes))
    assert plant.running("gpu1") == ["a/y0", "a/y1"]
    assert provided(plant.report("gpu0")) == [("gpu1", "a", "x")]
    plant.run_all()
    plant.assert_empty()


def test_with_one_executor_the_controlnet_runs_first(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", steered(2, control()))
    order = []
    while plant.busy():
        order += plant.running("gpu0")
        assert awaited(plant.report("gpu0")) == []
    assert order == ["a/begin", "a/c0.0", "a/d0", "a/c1.0", "a/d1"]


@pytest.mark.parametrize("num_executors", [1, 2, 3])
@pytest.mark.parametrize("num_controls", [0, 1, 2, 3])
@pytest.mark.parametrize("is_strict", [True, False])
def test_any_number_of_controlnets_ends_on_any_number_of_executors(
    num_controls: int, num_executors: int, is_strict: bool
) -> None:
    plant = Plant(SchedulerConfig(is_strict=is_strict))
    for index in range(num_executors):
        plant.join(f"gpu{index}")
    controls = [control(index) for index in range(num_controls)]
    for name in ("a", "b"):
        plant.arrive(name, steered(4, *controls))
    plant.run_all()
    assert (plant.outcome("a"), plant.outcome("b")) == (Outcome.SUCCESS, Outcome.SUCCESS)
    plant.assert_empty()


def test_a_denoiser_is_sent_only_when_all_its_controlnets_are(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("a", steered(1, control(0), control(1), control(2)))
    plant.report("gpu0")
    assert sorted([*plant.running("gpu0"), *plant.running("gpu1")]) == ["a/c0.0", "a/c0.1"]
    first = plant.busy()[0]
    assert sends(plant.report(first)) == [(first, ["a/c0.2"])]
    assert sends(plant.report(plant.busy()[1])) == [
        ("gpu1" if first == "gpu0" else "gpu0", ["a/d0"])
    ]
    plant.run_all()
    plant.assert_empty()


def test_a_controlnet_moves_beside_its_denoiser_when_that_pays(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", steered(50, control()))
    for _ in range(5):
        plant.report("gpu0", load_s=1.0, run_s=0.5)  # begin and two whole steps
    assert plant.running("gpu0") == ["a/c2.0"]
    plant.join("gpu1")
    plant.report("gpu0")
    plant.report("gpu0")
    assert (plant.running("gpu0"), plant.running("gpu1")) == (["a/d3"], ["a/c3.0"])
    plant.run_all()


def test_a_controlnet_stays_with_its_denoiser_when_moving_costs_more(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", steered(4, control(size_bytes=10 * 10**9)))
    for _ in range(3):
        plant.report("gpu0", load_s=10.0, run_s=0.5)
    plant.join("gpu1")
    while plant.busy():
        assert plant.running("gpu1") == []
        plant.report("gpu0")
    assert plant.outcome("a") == Outcome.SUCCESS


def test_an_executor_is_not_held_for_a_value_that_is_long_in_coming(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("warm", steered(1, control()))
    plant.run_all()  # both models are on gpu0
    plant.join("gpu1")
    slow = model("slow", Role.CONTROLNET, size_bytes=60 * 10**9)
    plant.arrive("a", steered(1, slow))
    plant.arrive("b", chain(1, DENOISER), number=1.0)
    plant.report("gpu0")
    held = {name: plant.running(name) for name in ("gpu0", "gpu1")}
    assert held == {"gpu0": ["b/s0"], "gpu1": ["a/c0.0"]}  # a/d0 would wait a minute on gpu0
    plant.run_all()
    plant.assert_empty()


def test_seconds_of_waiting_are_not_seconds_of_work(plant: Plant) -> None:
    settled(plant, "gpu0", "gpu1")
    (home,) = plant.waiting()
    plant.report(plant.busy()[0])
    report = plant.finish(home, run_s=60.1)
    profile = plant.scheduler.profiles.call("denoise", DENOISER.key)
    before_s = profile.seconds_s
    fields = {name: getattr(report, name) for name in report.__struct_fields__}
    plant.happen(type(report)(**{**fields, "waited_s": 60.0}))
    assert profile.seconds_s == pytest.approx(before_s)
    plant.run_all()


def test_the_loss_of_the_maker_stops_who_waits_and_both_run_again() -> None:
    plant = Plant(SchedulerConfig(max_attempts=2, max_lost=0, max_ahead=0))
    settled(plant, "gpu0", "gpu1")
    (home,) = plant.waiting()
    (maker,) = plant.busy()
    actions = plant.lose(maker)
    assert cancelled(actions) == [home]
    assert "a/c1.0" in resets(actions)
    actions = plant.report(home, result=lambda _: CallCancelled())
    assert "a/d1" in resets(actions)
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_waiting_for_a_maker_that_dies_again_and_again_is_the_makers_fault() -> None:
    plant = Plant(SchedulerConfig(max_attempts=2, max_lost=0, max_ahead=0))
    settled(plant, "gpu0", "gpu1")
    for _ in range(2):
        (home,) = plant.waiting()
        (maker,) = plant.busy()
        plant.lose(maker)
        plant.report(home)
        plant.join(maker)
        while plant.busy() and not plant.waiting() and not plant.ended:
            plant.report(plant.busy()[0])
    ended = plant.ended[RequestId("a")]
    assert ended.error is not None
    assert ended.error.code == "poisoned_request"
    assert ended.node_id == "c1.0"


def test_a_failed_maker_fails_the_request_and_frees_who_waits(plant: Plant) -> None:
    settled(plant, "gpu0", "gpu1")
    (home,) = plant.waiting()
    (maker,) = plant.busy()
    assert cancelled(plant.report(maker, result=fail)) == [home]
    plant.report(home)
    ended = plant.ended[RequestId("a")]
    assert (ended.outcome, ended.node_id) == (Outcome.ERROR, "c1.0")
    plant.assert_empty()


def test_a_maker_whose_inputs_are_lost_stops_who_waits(plant: Plant) -> None:
    settled(plant, "gpu0", "gpu1")
    (home,) = plant.waiting()
    (maker,) = plant.busy()

    def lose_inputs(call: NodeCall) -> CallResult:
        keys = [ref.key for item in call.inputs for ref in getattr(item.value, "tensors", ())]
        return CallLost(missing=tuple(keys))

    actions = plant.report(maker, result=lose_inputs)
    assert cancelled(actions) == [home]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_request_in_the_same_batch_only_loses_time() -> None:
    plant = Plant(SchedulerConfig(max_lost=0, max_ahead=0))
    plant.join("gpu0")
    plant.arrive("warm", chain(1, DENOISER))
    plant.report("gpu0", load_s=10.0, run_s=1.0)
    plant.join("gpu1")
    plant.arrive("b", steered(1, control()))
    plant.arrive("c", steered(1), number=1.0)
    plant.report("gpu1")  # its step rather waits for gpu0
    assert (plant.running("gpu0"), plant.running("gpu1")) == (["b/begin"], [])
    plant.report("gpu0")
    assert (plant.running("gpu0"), plant.running("gpu1")) == (["b/d0", "c/d0"], ["b/c0.0"])
    plant.cancel("b")
    actions = plant.report("gpu1")
    assert cancelled(actions) == ["gpu0"]
    plant.run_all()
    assert plant.outcome("b") == Outcome.INTERRUPTED
    assert plant.outcome("c") == Outcome.SUCCESS
    plant.assert_empty()


def test_cancelling_the_request_stops_both(plant: Plant) -> None:
    settled(plant, "gpu0", "gpu1")
    assert sorted(cancelled(plant.cancel("a"))) == ["gpu0", "gpu1"]
    plant.run_all()
    assert plant.outcome("a") == Outcome.INTERRUPTED
    plant.assert_empty()


def test_a_denoiser_that_did_without_the_value_is_done(plant: Plant) -> None:
    settled(plant, "gpu0", "gpu1")
    (home,) = plant.waiting()
    actions = plant.report(home)
    finished = [a.node_id for a in actions if isinstance(a, NodeFinished)]
    assert finished == ["d1"]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_value_that_is_read_eagerly_as_well_is_waited_for(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    nodes = [
        node("x", "op_x", gives=[LATENT]),
        node("y", "op_y", reads={"now": "x", "late": "x"}, deferred=["late"]),
    ]
    plant.arrive("a", graph(*nodes))
    assert plant.running("gpu1") == []
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS


def test_names_of_a_batch_are_told(plant: Plant) -> None:
    actions = settled(plant, "gpu0", "gpu1")
    batches = [names(action.batch) for action in actions if isinstance(action, SendBatch)]
    assert sorted(batches) == [["a/c1.0"], ["a/d1"]]
