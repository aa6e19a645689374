"""Where nodes go: fetch + load against waiting for an executor that has the model."""

from __future__ import annotations

import msgspec
from kit.graphs import chain, graph, model, node
from kit.plant import Plant, sends
from nodeloom.graph_import.types import MASK

BIG = model("big", size_bytes=10 * 10**9)  # ten seconds to load
TINY = model("tiny", size_bytes=10**6)


def test_a_node_goes_where_its_model_is(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("busy", chain(1, None))  # so that the model comes to gpu1
    plant.arrive("warm", chain(1, BIG))
    assert plant.running("gpu1") == ["warm/s0"]
    plant.run_all()
    assert sends(plant.arrive("a", chain(1, BIG))) == [("gpu1", ["a/s0"])]


def test_a_node_without_a_model_goes_where_its_input_is(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("other", chain(1, None), number=-1.0)
    plant.arrive("a", chain(2, None))
    assert plant.running("gpu1") == ["a/s0"]
    plant.report("gpu0")
    plant.report("gpu1")
    assert plant.running("gpu1") == ["a/s1"]


def test_a_node_goes_to_the_holder_of_the_larger_input(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    nodes = [
        node("small", "op_a", gives=[MASK]),  # travels in its ref: nothing to fetch
        node("large", "op_b"),
        node("both", "op_c", reads=["small", "large"]),
    ]
    plant.arrive("a", graph(*nodes))
    assert plant.running("gpu1") == ["a/large"]
    plant.report("gpu0")
    plant.report("gpu1")
    assert plant.running("gpu1") == ["a/both"]


def test_a_step_stays_where_the_step_before_it_ran(plant: Plant) -> None:
    for name in ("gpu0", "gpu1", "gpu2"):
        plant.join(name)
    for i in range(3):
        plant.arrive(f"r{i}", chain(5, TINY), number=float(i))
    plant.report("gpu0")
    plant.report("gpu1")
    plant.report("gpu2")
    where = {name: plant.running(name) for name in plant.workers}
    for name in ("gpu2", "gpu0", "gpu1"):
        plant.report(name)
    assert {name: [call[:2] for call in plant.running(name)] for name in plant.workers} == {
        name: [call[:2] for call in calls] for name, calls in where.items()
    }


def test_a_node_waits_for_a_busy_executor_that_has_the_model_when_loading_takes_longer(
    plant: Plant,
) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, BIG))
    plant.report("gpu0", load_s=10.0)
    plant.join("gpu1")
    assert sends(plant.arrive("b", chain(1, BIG), number=1.0)) == []
    assert sends(plant.report("gpu0")) == [("gpu0", ["b/s0"])]


def test_a_node_behind_one_that_waits_uses_the_idle_executor(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, BIG))
    plant.report("gpu0", load_s=10.0)
    plant.join("gpu1")
    plant.arrive("waits", chain(1, BIG), number=1.0)
    assert sends(plant.arrive("later", chain(1, None), number=2.0)) == [("gpu1", ["later/s0"])]


def test_the_model_is_loaded_a_second_time_when_the_queue_for_it_takes_longer(
    plant: Plant,
) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(1, BIG))
    plant.report("gpu0", load_s=10.0, run_s=1.0)
    plant.arrive("b", chain(4, BIG), number=1.0)
    plant.join("gpu1")
    assert sends(plant.arrive("c", chain(4, BIG), number=2.0)) == []  # 4 s behind b
    assert sends(plant.arrive("d", chain(4, BIG), number=3.0)) == []  # 8 s behind b and c
    assert sends(plant.arrive("e", chain(4, BIG), number=4.0)) == [("gpu1", ["e/s0"])]  # 12 s


def test_measured_seconds_replace_the_guess_by_file_size(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, BIG))
    plant.report("gpu0", load_s=0.01, run_s=5.0)
    plant.join("gpu1")
    assert sends(plant.arrive("b", chain(1, BIG), number=1.0)) == [("gpu1", ["b/s0"])]


def test_an_executor_that_is_loading_the_model_is_waited_for(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(1, BIG))
    plant.now_s += 9.9  # nearly there
    plant.join("gpu1")
    assert sends(plant.arrive("b", chain(1, BIG), number=1.0)) == []


def test_an_executor_that_overdraws_its_estimate_is_expected_at_any_time(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, BIG))
    plant.report("gpu0", load_s=10.0)
    plant.join("gpu1")
    plant.now_s += 1000.0
    assert sends(plant.arrive("b", chain(1, BIG), number=1.0)) == []


def test_a_node_that_waited_is_placed_anew_when_the_model_was_evicted_meanwhile(
    plant: Plant,
) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, BIG))
    plant.report("gpu0", load_s=10.0)
    plant.join("gpu1")
    plant.arrive("b", chain(1, BIG), number=1.0)
    report = plant.finish("gpu0")
    assert sends(plant.happen(msgspec.structs.replace(report, resident=()))) == [("gpu0", ["b/s0"])]


def test_when_nobody_has_the_model_the_executor_with_fewest_models_loads_it(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("a", chain(1, BIG))
    plant.run_all()
    assert sends(plant.arrive("b", chain(1, TINY))) == [("gpu1", ["b/s0"])]


def test_strict_mode_uses_every_executor_too(strict_plant: Plant) -> None:
    for name in ("gpu0", "gpu1"):
        strict_plant.join(name)
    for i in range(2):
        strict_plant.arrive(f"w{i}", chain(40, TINY), number=float(i))
    assert sorted(strict_plant.busy()) == ["gpu0", "gpu1"]
    strict_plant.run_all()
    both = graph(*[node(f"n{i}", "denoise", ref=TINY) for i in range(2)])
    assert sends(strict_plant.arrive("a", both)) == [("gpu0", ["a/n0"]), ("gpu1", ["a/n1"])]
