"""What goes to executors with a batch, and what clients hear of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.graphs import chain, graph, model, node
from kit.plant import Plant, names
from nodeloom.graph_import.types import CONDITIONING, INT, LATENT, MASK, SAMPLER_STATE
from nodeloom.runtime.protocol import AwaitedValue, RunBatch, ScalarValue, TreeValue
from nodeloom.runtime.scheduler.actions import (
    AnyAction,
    NodeStarted,
    RequestStarted,
    SendBatch,
)
from nodeloom.runtime.scheduler.invariants import check_scheduler
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig

DENOISER = model("m")


@pytest.fixture
def plant() -> Iterator[Plant]:
    plant = Plant(SchedulerConfig(max_ahead=3))
    yield plant
    check_scheduler(plant.scheduler)


def batches(actions: list[AnyAction]) -> list[RunBatch]:
    return [action.batch for action in actions if isinstance(action, SendBatch)]


def told(actions: list[AnyAction]) -> list[str]:
    """`a!` when request `a` starts, `a/n` when its node does."""
    return [
        f"{a.request_id}!" if isinstance(a, RequestStarted) else f"{a.request_id}/{a.node_id}"
        for a in actions
        if isinstance(a, RequestStarted | NodeStarted)
    ]


def test_each_batch_of_a_chain_names_the_one_before_it(plant: Plant) -> None:
    plant.join("gpu0")
    first, *later = batches(plant.arrive("a", chain(4, DENOISER)))
    assert first.after is None
    ids = [batch.batch_id for batch in (first, *later)]
    assert len(set(ids)) == 4
    assert [batch.after for batch in later] == ids[:-1]
    plant.report("gpu0")
    plant.report("gpu0")
    plant.run_all()
    (alone,) = batches(plant.arrive("b", chain(1, DENOISER)))
    assert alone.after is None


def test_inputs_are_values_that_are_there_or_stand_for_what_the_chain_makes(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("hold", chain(1, None), number=-1.0)
    nodes = [
        node("size", "op_a", gives=[INT]),
        node("x", "op_b", gives=[MASK, LATENT]),
        node("y", "op_c", reads={"size": "size", "latent": ("x", 1)}),
    ]
    plant.arrive("a", graph(*nodes))
    plant.report("gpu0")
    (made,) = batches(plant.report("gpu0"))[-1:]
    assert names(made) == ["a/y"]
    size, latent = made.calls[0].inputs
    assert (size.name, latent.name) == ("size", "latent")
    assert isinstance(size.value, ScalarValue)
    assert latent.value == AwaitedValue(request_id="a", node_id="x", port=1)  # type: ignore[arg-type]
    plant.report("gpu0")
    plant.cancel("a")


def test_a_value_that_is_there_is_sent_as_its_ref(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", graph(node("x", "op", gives=[LATENT])))
    plant.run_all()
    nodes = [node("x", "op_x"), node("w", "op_w"), node("y", "op_y", reads=["x", "w"])]
    plant.arrive("b", graph(*nodes))
    plant.report("gpu0")
    batch = plant.workers["gpu0"].batches[-1]  # type: ignore[index]
    first, second = batch.calls[0].inputs
    assert isinstance(first.value, TreeValue)
    assert isinstance(second.value, AwaitedValue)


def test_small_values_that_are_dear_to_make_are_to_be_kept_in_files(plant: Plant) -> None:
    plant.join("gpu0")
    gives = [SAMPLER_STATE, MASK, CONDITIONING, INT, LATENT]
    (batch,) = batches(plant.arrive("a", graph(node("x", gives=gives))))
    assert batch.calls[0].checkpoints == (0, 2, 4)
    assert batch.calls[0].num_outputs == 5


def test_what_a_node_wants_to_be_told_of_its_request_is_asked_for(plant: Plant) -> None:
    plant.join("gpu0")
    nodes = [node("x", gives=[LATENT]), node("save", "save", reads=["x"], hidden=("prompt",))]
    actions = plant.arrive("a", graph(*nodes))
    sent = [action for action in actions if isinstance(action, SendBatch)]
    assert [(names(a.batch), a.hidden) for a in sent] == [
        (["a/x"], ((),)),
        (["a/save"], (("prompt",),)),
    ]
    assert all(call.hidden == () for a in sent for call in a.batch.calls)


def test_a_request_starts_once_and_before_its_first_node(plant: Plant) -> None:
    plant.join("gpu0")
    assert told(plant.arrive("a", chain(3, DENOISER))) == ["a!", "a/s0"]
    assert told(plant.report("gpu0")) == ["a/s1"]


def test_a_node_that_runs_again_is_told_of_again(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, DENOISER))
    plant.lose("gpu0")
    assert told(plant.join("gpu0")) == ["a/s0"]


def test_of_a_request_that_ends_nothing_more_is_told(plant: Plant) -> None:
    plant.arrive("a", chain(3, DENOISER))
    plant.arrive("b", chain(3, DENOISER))
    plant.join("gpu0")
    assert plant.running("gpu0") == ["a/s0", "b/s0"]
    first = plant.finish("gpu0")  # the executor has begun with the next step of both
    plant.cancel("a")
    assert told(plant.happen(first)) == []
    assert told(plant.report("gpu0")) == ["b/s1"]
