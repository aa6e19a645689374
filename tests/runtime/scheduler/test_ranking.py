"""Which group is next when several exceptions to the order meet."""

from __future__ import annotations

from kit.graphs import chain, model, patched
from kit.loops import PAYS, order_of_work, sampled, teach
from kit.plant import Plant
from nodeloom.graph_import.handles import ModelRef, Role

BASE = model("m", size_bytes=10**6)
HUGE = model("huge", size_bytes=10**12)
TEXT = model("m", Role.TEXT_ENCODER, size_bytes=10**6)


def begun(plant: Plant, ref: ModelRef) -> None:
    """`a` is at its first step on `gpu0`, and batches of steps pay."""
    plant.join("gpu0")
    plant.arrive("warm", sampled(2, ref, text=TEXT), number=-9.0)
    plant.run_all()
    teach(plant, ref, PAYS)
    plant.arrive("a", sampled(6, ref, text=TEXT))
    plant.report("gpu0")
    plant.report("gpu0")
    assert plant.running("gpu0") == ["a/s0"]


def test_groups_go_by_the_order_of_their_foremost_node(plant: Plant) -> None:
    plant.arrive("c", chain(1, model("x", size_bytes=1)), number=3.0)
    plant.arrive("b", chain(1, model("y", size_bytes=1)), number=2.0)
    plant.arrive("a", chain(1, model("x", size_bytes=1)), number=1.0)
    plant.join("gpu0")
    assert order_of_work(plant, "gpu0") == ["a/s0 c/s0", "b/s0"]


def test_a_loop_that_has_begun_is_not_interrupted_for_other_patches(plant: Plant) -> None:
    begun(plant, BASE)
    plant.arrive("front", sampled(2, patched(BASE, "l")), number=-1.0)
    order = order_of_work(plant, "gpu0")
    steps = [batch for batch in order if "/s" in batch]
    assert steps == [*(f"a/s{i}" for i in range(6)), "front/s0", "front/s1"]


def test_what_needs_no_patches_of_the_model_still_goes_in_between(plant: Plant) -> None:
    begun(plant, BASE)
    plant.arrive("front", chain(1, None), number=-1.0)
    assert order_of_work(plant, "gpu0")[:3] == ["a/s0", "front/s0", "a/s1"]


def test_who_catches_up_goes_before_whom_it_catches_up_with_and_no_earlier(plant: Plant) -> None:
    begun(plant, BASE)
    plant.arrive("b", sampled(6, BASE, text=TEXT), number=2.0)
    plant.arrive("front", chain(1, None), number=-1.0)
    order = order_of_work(plant, "gpu0")
    assert order[:5] == ["a/s0", "front/s0", "b/text", "b/begin", "a/s1 b/s0"]


def test_who_may_go_before_two_others_goes_before_the_foremost(plant: Plant) -> None:
    text_a, text_b = patched(TEXT, "a"), patched(TEXT, "b")
    plant.join("gpu0")
    plant.arrive("warm", sampled(2, BASE, text=text_a), number=-9.0)
    plant.run_all()
    teach(plant, BASE, PAYS)
    plant.arrive("a", sampled(6, BASE, text=text_a))
    plant.report("gpu0")
    plant.report("gpu0")
    plant.arrive("front", chain(1, text_b, "text_encode"), number=-1.0)
    plant.arrive("b", sampled(6, BASE, text=text_a), number=2.0)
    # It catches up with a, and needs no switch, which front does.
    assert order_of_work(plant, "gpu0")[:4] == ["a/s0", "b/text", "front/s0", "b/begin"]


def test_newcomers_do_not_extend_a_loop_that_others_patches_wait_for(plant: Plant) -> None:
    """Another executor brings newcomers to their first step; the loop ends all the same."""
    plant.join("gpu0")
    plant.arrive("a00", sampled(6, HUGE), number=1.0)
    plant.report("gpu0")
    plant.report("gpu0", load_s=10_000.0)
    teach(plant, HUGE, PAYS)
    plant.join("gpu1")  # does what needs no model
    plant.arrive("b", sampled(2, patched(HUGE, "l")), number=0.0)
    order = []
    for index in range(1, 60):
        plant.arrive(f"a{index:02}", sampled(6, HUGE), number=1.0 + index)
        while plant.running("gpu1"):
            plant.report("gpu1")
        order.append(plant.running("gpu0"))
        plant.report("gpu0")
    where = order.index(["b/s0"])
    assert where <= 8
    assert all(call.startswith("a00/") for batch in order[:where] for call in batch)


def test_newcomers_that_are_soon_over_may_join_a_loop_that_others_wait_for(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a0", sampled(6, HUGE), number=1.0)
    plant.report("gpu0")
    plant.report("gpu0", load_s=10_000.0)
    teach(plant, HUGE, PAYS)
    plant.scheduler.profiles.switch(HUGE.key).learn(5.0)
    plant.join("gpu1")
    plant.arrive("b", sampled(2, patched(HUGE, "l")), number=0.0)
    plant.arrive("a1", sampled(2, HUGE), number=2.0)
    plant.report("gpu1")
    plant.report("gpu1")
    plant.report("gpu0")
    assert plant.running("gpu0") == ["a0/s2", "a1/s0"]
