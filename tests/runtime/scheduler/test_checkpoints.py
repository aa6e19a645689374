"""Values in files survive their maker: a killed chain goes on from its last step, and files go."""

from __future__ import annotations

import pytest
from kit.checkpoint_files import ALWAYS, CheckpointFiles
from kit.graphs import chain, graph, model, node, text_to_image
from kit.plant import Plant, resets
from nodeloom.graph_import.types import CONDITIONING, IMAGE, INT, LATENT, MASK, SAMPLER_STATE
from nodeloom.runtime.protocol import CallLost, CallResult, NodeCall, TreeValue
from nodeloom.runtime.scheduler.actions import (
    AnyAction,
    DropCheckpoints,
    NodeFinished,
    Outcome,
    SweepCheckpoints,
)
from nodeloom.runtime.scheduler.checkpoints import checkpointed_ports
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig


@pytest.fixture
def plant() -> Plant:
    """Executors write every file that they are asked for."""
    return Plant(SchedulerConfig(max_ahead=0), files=CheckpointFiles(ALWAYS))


def dropped(actions: list[AnyAction]) -> list[str]:
    return [name for a in actions if isinstance(a, DropCheckpoints) for name in a.names]


def swept(actions: list[AnyAction]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Whose files go, and which of them stay."""
    sweeps = [action for action in actions if isinstance(action, SweepCheckpoints)]
    return [(action.executor, action.incarnation, action.kept) for action in sweeps]


def num_done(plant: Plant, op: str) -> int:
    """How often nodes of an op were reported done, repetitions included."""
    done = [a for _, _, actions in plant.log for a in actions if isinstance(a, NodeFinished)]
    return sum(plant.nodes[a.request_id][a.node_id].op == op for a in done)


def lose_inputs(call: NodeCall) -> CallResult:
    values = [item.value for item in call.inputs if isinstance(item.value, TreeValue)]
    return CallLost(missing=tuple(ref.key for value in values for ref in value.tensors))


def test_states_conditionings_and_latents_are_checkpointed_and_pictures_are_not() -> None:
    gives = [INT, SAMPLER_STATE, IMAGE, CONDITIONING, MASK, LATENT]
    assert checkpointed_ports(node("x", gives=gives)) == (1, 3, 5)
    assert checkpointed_ports(node("x", gives=[])) == ()


@pytest.mark.parametrize("num_losses", [1, 3])
def test_a_loss_costs_the_step_that_runs_and_no_other(plant: Plant, num_losses: int) -> None:
    plant.join("gpu0")
    plant.arrive("a", text_to_image(20))
    for _ in range(num_losses):
        before = num_done(plant, "denoise")
        while num_done(plant, "denoise") < before + 5:
            plant.report("gpu0")
        (running,) = plant.running("gpu0")
        assert resets(plant.join("gpu0")) == [running]  # a new incarnation: the old one is lost
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    assert num_done(plant, "denoise") == 20
    plant.assert_empty()


def test_a_chain_that_was_sent_ahead_goes_on_from_its_last_step() -> None:
    plant = Plant(SchedulerConfig(max_ahead=16), files=CheckpointFiles(ALWAYS))
    plant.join("gpu0")
    plant.arrive("a", text_to_image(20))
    while num_done(plant, "denoise") < 7:
        plant.report("gpu0")
    plant.join("gpu0")
    plant.run_all()
    assert num_done(plant, "denoise") == 20
    plant.assert_empty()


def test_a_value_with_a_tensor_in_no_file_is_lost(plant: Plant) -> None:
    plant.join("gpu0")
    nodes = [node("x"), node("picture", gives=[IMAGE]), node("y", reads=["x", "picture"])]
    plant.arrive("a", graph(*nodes))
    plant.report("gpu0")
    plant.report("gpu0")
    assert resets(plant.join("gpu0")) == ["a/y", "a/picture"]
    plant.run_all()
    plant.assert_empty()


def test_a_dead_executors_files_go_when_nobody_needs_them(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(4, model("m")))
    plant.report("gpu0")
    plant.report("gpu0")
    assert plant.files.names == {"gpu0.i1.2"}
    assert swept(plant.join("gpu0")) == [("gpu0", "i1", ("gpu0.i1.2",))]
    assert plant.running("gpu0") == ["a/s2"]
    assert dropped(plant.report("gpu0")) == ["gpu0.i1.2"]
    assert plant.files.names == {"gpu0.i2.1"}
    assert dropped(plant.report("gpu0")) == []  # its living maker deletes it
    plant.assert_empty()


def test_files_that_were_never_reported_are_swept(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, model("m")))
    plant.report("gpu0")
    report = plant.finish("gpu0")
    assert plant.files.names == {"gpu0.i1.1", "gpu0.i1.2"}
    assert swept(plant.lose("gpu0")) == [("gpu0", "i1", ("gpu0.i1.1",))]
    assert plant.files.names == {"gpu0.i1.1"}
    plant.happen(report)
    plant.join("gpu1")
    plant.run_all()
    plant.assert_empty()


def test_a_file_stays_while_a_batch_reads_it_and_the_request_is_over(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, None))
    plant.report("gpu0")
    plant.join("gpu0")
    actions = plant.cancel("a")
    assert dropped(actions) == []
    assert plant.files.names == {"gpu0.i1.1"}
    assert dropped(plant.report("gpu0")) == ["gpu0.i1.1"]
    plant.assert_empty()


def test_a_file_that_could_not_be_read_is_given_up_and_made_again(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, None))
    plant.report("gpu0")
    plant.join("gpu0")
    plant.files.vanish("gpu0.i1.1")
    actions = plant.report("gpu0", result=lose_inputs)
    assert resets(actions) == ["a/s1", "a/s0"]
    assert dropped(actions) == ["gpu0.i1.1"]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_failed_request_leaves_no_files(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", graph(node("x"), node("y", reads=["x"]), node("z", reads=["x", "y"])))
    plant.report("gpu0")
    for _ in range(2):  # y kills two executors
        plant.join("gpu0")
    assert plant.outcome("a") == Outcome.ERROR
    plant.assert_empty()
