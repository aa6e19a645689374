"""Patches on shared models: where they are already, whose turn it is, and how far that may go."""

from __future__ import annotations

import pytest
from kit.graphs import chain, graph, model, node, patched
from kit.plant import Plant, sends
from nodeloom.graph_import.handles import ModelRef
from nodeloom.graph_import.ir import Graph
from nodeloom.runtime.scheduler.switching import MAX_PASSES

BASE = model("base", size_bytes=10**6)
A, B = patched(BASE, "a"), patched(BASE, "b")


def one(ref: ModelRef | None) -> Graph:
    return chain(1, ref)


def warm(plant: Plant, ref: ModelRef, *, run_s: float = 0.09) -> None:
    """`gpu0` has just run one call with these patches and idles."""
    plant.join("gpu0")
    plant.arrive("warm", one(ref), number=-1.0)
    plant.report("gpu0", run_s=run_s)


def warm_both(plant: Plant) -> None:
    """`gpu0` has run with the patches of A, `gpu1` with those of B; both idle."""
    plant.join("gpu0")
    plant.join("gpu1")
    for number, (name, ref) in enumerate({"warm-a": A, "warm-b": B}.items()):
        plant.arrive(name, chain(40, ref), number=number - 9.0)  # worth loading the model twice
    plant.run_all()
    table = {name: plant.workers[name].resident for name in plant.workers}
    assert table == {"gpu0": {BASE.key: A.patches}, "gpu1": {BASE.key: B.patches}}


def served(plant: Plant, name: str, *, run_s: float = 0.09) -> list[str]:
    """What an executor runs from now on, batch by batch, until nothing is left."""
    order = []
    while plant.running(name):
        order.append("+".join(call.partition("/")[0] for call in plant.running(name)))
        plant.report(name, run_s=run_s)
    return order


def test_a_node_goes_where_its_patches_are(plant: Plant) -> None:
    warm_both(plant)
    assert sends(plant.arrive("b", one(B))) == [("gpu1", ["b/s0"])]
    assert sends(plant.arrive("a", one(A))) == [("gpu0", ["a/s0"])]


def test_an_idle_executor_switches_rather_than_that_a_node_waits(plant: Plant) -> None:
    warm(plant, A)
    assert sends(plant.arrive("b", one(B))) == [("gpu0", ["b/s0"])]


def test_an_executor_whose_patches_nobody_wants_is_switched_first(plant: Plant) -> None:
    warm_both(plant)
    plain = node("plain", "denoise", ref=BASE)
    both = graph(plain, node("a", "denoise", ref=A))
    assert sends(plant.arrive("r", both)) == [("gpu1", ["r/plain"]), ("gpu0", ["r/a"])]


def test_few_calls_that_need_no_switch_go_before_one_that_does(strict_plant: Plant) -> None:
    warm(strict_plant, A)
    strict_plant.arrive("busy", one(None))
    strict_plant.arrive("b", one(B), number=1.0)
    strict_plant.arrive("a", one(A), number=2.0)
    assert served(strict_plant, "gpu0") == ["busy", "a", "b"]


def test_a_request_with_many_calls_left_waits_for_its_turn(strict_plant: Plant) -> None:
    warm(strict_plant, A)
    strict_plant.arrive("busy", one(None))
    strict_plant.arrive("b", one(B), number=1.0)
    strict_plant.arrive("a", chain(3, A), number=2.0)  # 0.3 s; a switch to and fro takes 0.2 s
    assert served(strict_plant, "gpu0") == ["busy", "b", "a", "a", "a"]


def test_what_goes_before_a_node_delays_it_by_two_switches_at_most(strict_plant: Plant) -> None:
    warm(strict_plant, A)
    strict_plant.arrive("busy", one(None))
    strict_plant.arrive("b", one(B), number=1.0)
    for index in range(5):
        strict_plant.arrive(f"a{index}", one(A), number=2.0 + index)
    assert served(strict_plant, "gpu0") == ["busy", "a0", "a1", "b", "a2", "a3", "a4"]


def test_no_more_than_so_many_batches_go_before_a_node_however_short(strict_plant: Plant) -> None:
    warm(strict_plant, A, run_s=0.001)
    strict_plant.arrive("busy", one(None))
    strict_plant.arrive("b", one(B), number=1.0)
    for index in range(MAX_PASSES + 3):
        strict_plant.arrive(f"a{index:02}", one(A), number=2.0 + index)
    order = served(strict_plant, "gpu0", run_s=0.001)
    assert order.index("b") == 1 + MAX_PASSES


def test_new_requests_can_not_keep_a_node_waiting(strict_plant: Plant) -> None:
    warm(strict_plant, A)
    strict_plant.arrive("busy", one(None))
    strict_plant.arrive("b", one(B), number=1.0)
    order = []
    for index in range(20):
        strict_plant.arrive(f"a{index}", one(A), number=2.0 + index)
        order.append(strict_plant.running("gpu0")[0])
        strict_plant.report("gpu0")
    assert order.index("b/s0") <= 3


def test_order_is_by_request_where_both_can_run_at_once(strict_plant: Plant) -> None:
    warm_both(strict_plant)
    both = graph(node("x", "denoise", ref=B), node("y", "denoise", ref=A))
    assert sends(strict_plant.arrive("r", both)) == [("gpu1", ["r/x"]), ("gpu0", ["r/y"])]


def test_nodes_are_not_spread_to_an_executor_whose_patches_others_want(plant: Plant) -> None:
    warm_both(plant)
    plant.teach_batches("denoise", A, 2, 4)
    nodes = [node(f"a{index}", "denoise", ref=A) for index in range(4)]
    both = graph(*nodes, node("b", "denoise", ref=B))
    assert sends(plant.arrive("r", both)) == [
        ("gpu0", ["r/a0", "r/a1", "r/a2", "r/a3"]),
        ("gpu1", ["r/b"]),
    ]


def test_nodes_are_spread_to_an_executor_whose_patches_nobody_wants(plant: Plant) -> None:
    warm_both(plant)
    nodes = [node(f"a{index}", "denoise", ref=A) for index in range(4)]
    assert [name for name, _ in sends(plant.arrive("r", graph(*nodes)))] == ["gpu0", "gpu1"]


def test_patches_are_as_the_executor_says(plant: Plant) -> None:
    warm(plant, A)
    replicas = plant.scheduler.replicas
    (executor,) = plant.workers
    assert replicas.patches(executor, BASE.key) == A.patches
    plant.arrive("b", one(B))
    plant.report("gpu0")
    assert replicas.patches(executor, BASE.key) == B.patches
    plant.arrive("other", one(model("other", size_bytes=10**6)))
    plant.report("gpu0")
    assert replicas.patches(executor, BASE.key) == B.patches
    replicas.report(executor, [])
    replicas.report(executor, [BASE.key])
    assert replicas.patches(executor, BASE.key) == ()  # read anew


def test_a_lost_executor_takes_its_patches_along(plant: Plant) -> None:
    warm(plant, A)
    (executor,) = plant.workers
    plant.lose("gpu0")
    assert plant.scheduler.replicas.patches(executor, BASE.key) == ()


@pytest.mark.parametrize("switch_s", [0.02, 3.0])
def test_switching_is_measured_and_no_part_of_what_a_call_takes(
    plant: Plant, switch_s: float
) -> None:
    plant.join("gpu0")
    plant.arrive("a", one(A))
    plant.report("gpu0", run_s=0.5, load_s=2.0, switch_s=switch_s)
    profiles = plant.scheduler.profiles
    assert profiles.switch(BASE.key).seconds_s == pytest.approx(switch_s)
    assert profiles.call("denoise", BASE.key).seconds_s == pytest.approx(0.5)
    assert profiles.load(BASE.key).seconds_s == pytest.approx(2.0)
