"""What runs as one batch, and what doesn't."""

from __future__ import annotations

from kit.graphs import chain, graph, model, node, patched
from kit.plant import Plant, sends
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.types import LATENT, MASK
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig

DENOISER = model("m")


def single(op: str = "denoise", *, lora: str | None = None, name: str = "n") -> Graph:
    """One node on the model, with or without a LoRA."""
    return graph(node(name, op, ref=patched(DENOISER, lora) if lora else DENOISER))


def arrive_in_order(plant: Plant, graphs: dict[str, Graph]) -> None:
    for number, (name, item) in enumerate(graphs.items()):
        plant.arrive(name, item, number=float(number))


def test_same_model_nodes_of_two_requests_share_one_batch(plant: Plant) -> None:
    arrive_in_order(plant, {"a": single(), "b": single()})
    assert sends(plant.join("gpu0")) == [("gpu0", ["a/n", "b/n"])]


def test_two_nodes_of_one_request_share_one_batch(plant: Plant) -> None:
    plant.arrive("a", graph(node("x", "denoise", ref=DENOISER), node("y", "denoise", ref=DENOISER)))
    assert sends(plant.join("gpu0")) == [("gpu0", ["a/x", "a/y"])]


def test_in_strict_mode_every_call_is_its_own_batch(strict_plant: Plant) -> None:
    arrive_in_order(strict_plant, {"a": single(), "b": single()})
    assert sends(strict_plant.join("gpu0")) == [("gpu0", ["a/n"])]
    assert sends(strict_plant.report("gpu0")) == [("gpu0", ["b/n"])]


def test_other_patches_other_ops_and_other_models_are_other_batches(plant: Plant) -> None:
    arrive_in_order(
        plant,
        {
            "a": single(),
            "patched": single(lora="l"),
            "encode": single("vae_encode"),
            "other": graph(node("n", "denoise", ref=model("other"))),
            "b": single(),
        },
    )
    plant.join("gpu0")
    batches = [plant.running("gpu0")]
    while plant.busy():
        plant.report("gpu0")
        batches.append(plant.running("gpu0"))
    assert batches == [["a/n", "b/n"], ["patched/n"], ["encode/n"], ["other/n"], []]


def test_calls_that_read_other_shapes_are_other_batches(plant: Plant) -> None:
    gives = {"a": LATENT, "b": MASK, "c": LATENT}
    nodes = [node(name, "op", gives=[type_]) for name, type_ in gives.items()]
    nodes.append(node("go", "join", reads=list(gives)))
    nodes += [node(f"n{name}", "denoise", ref=DENOISER, reads=[name, "go"]) for name in gives]
    plant.arrive("r", graph(*nodes))
    plant.join("gpu0")
    for _ in range(4):
        plant.report("gpu0")
    assert plant.running("gpu0") == ["r/na", "r/nc"]
    plant.report("gpu0")
    assert plant.running("gpu0") == ["r/nb"]


def test_nodes_without_a_model_go_one_by_one(plant: Plant) -> None:
    arrive_in_order(plant, {"a": chain(1, None), "b": chain(1, None)})
    assert sends(plant.join("gpu0")) == [("gpu0", ["a/s0"])]


def test_a_batch_has_at_most_b_max_calls_taken_in_order() -> None:
    plant = Plant(SchedulerConfig(max_batch=3, max_ahead=0))
    plant.teach_batches("denoise", DENOISER, 2, 3)
    arrive_in_order(plant, {name: single() for name in "abcde"})
    assert sends(plant.join("gpu0")) == [("gpu0", ["a/n", "b/n", "c/n"])]
    assert sends(plant.report("gpu0")) == [("gpu0", ["d/n", "e/n"])]


def test_idle_executors_with_the_model_share_what_is_ready_evenly() -> None:
    plant = Plant()
    plant.join("gpu0")
    plant.join("gpu1")
    # Forty steps of two requests are worth loading the model twice.
    plant.arrive("w0", chain(40, DENOISER))
    plant.arrive("w1", chain(40, DENOISER), number=1.0)
    assert sorted(plant.busy()) == ["gpu0", "gpu1"]
    plant.run_all()
    four = graph(*[node(f"n{i}", "denoise", ref=DENOISER) for i in range(4)])
    assert sends(plant.arrive("a", four)) == [
        ("gpu0", ["a/n0", "a/n1"]),
        ("gpu1", ["a/n2", "a/n3"]),
    ]


def test_when_a_batch_is_split_every_executor_takes_the_nodes_whose_inputs_it_has() -> None:
    plant = Plant()
    plant.join("gpu0")
    plant.join("gpu1")
    for i in range(2):
        plant.arrive(f"w{i}", chain(40, DENOISER), number=float(i))
    plant.run_all()
    # Four chains, two on each executor; their first steps end together on both.
    two = graph(
        *[node(f"x{i}", "denoise", ref=DENOISER) for i in range(4)],
        node("go", "join", reads=[f"x{i}" for i in range(4)]),
        *[node(f"y{i}", "denoise", ref=DENOISER, reads=[f"x{i}", "go"]) for i in range(4)],
    )
    plant.arrive("a", two)
    assert [plant.running(name) for name in ("gpu0", "gpu1")] == [
        ["a/x0", "a/x1"],
        ["a/x2", "a/x3"],
    ]
    plant.report("gpu1")
    plant.report("gpu0")
    (name,) = plant.busy()
    plant.report(name)
    assert [plant.running(name) for name in ("gpu0", "gpu1")] == [
        ["a/y0", "a/y1"],
        ["a/y2", "a/y3"],
    ]


def test_a_node_whose_executor_died_is_tried_again_alone(plant: Plant) -> None:
    plant.teach_batches("denoise", DENOISER, 2, 4)
    arrive_in_order(plant, {"a": single(), "b": single(), "c": single()})
    plant.join("gpu0")
    assert plant.running("gpu0") == ["a/n", "b/n", "c/n"]
    plant.lose("gpu0")
    plant.arrive("d", single(), number=9.0)
    plant.arrive("e", single(), number=9.0)
    plant.join("gpu0")
    batches = [plant.running("gpu0")]
    while plant.busy():
        plant.report("gpu0")
        batches.append(plant.running("gpu0"))
    assert batches == [["a/n"], ["b/n"], ["c/n"], ["d/n", "e/n"], []]
