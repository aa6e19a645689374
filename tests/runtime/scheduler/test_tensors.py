"""Values are released when their last reader is done, everywhere, once."""

from __future__ import annotations

import pytest
from kit.graphs import chain, graph, model, node
from kit.plant import Plant
from nodeloom.graph_import.types import INT, LATENT, MASK
from nodeloom.runtime.ids import ExecutorId, TensorId
from nodeloom.runtime.protocol import ScalarValue, TensorKey, TensorRef, TreeValue
from nodeloom.runtime.scheduler.actions import AnyAction, Release, SendBatch
from nodeloom.runtime.scheduler.tensors import hold


def releases(actions: list[AnyAction]) -> list[tuple[str, list[int]]]:
    """The released tensors by executor."""
    return [
        (a.executor, [key.tensor_id for key in a.keys]) for a in actions if isinstance(a, Release)
    ]


def test_a_value_is_released_when_its_last_reader_is_done(plant: Plant) -> None:
    plant.join("gpu0")
    nodes = [node("x"), node("y", reads=["x"]), node("z", reads=["x", "y"])]
    plant.arrive("a", graph(*nodes))
    assert releases(plant.report("gpu0")) == []
    assert releases(plant.report("gpu0")) == []
    # The sink's own output is wanted by nobody.
    assert releases(plant.report("gpu0")) == [("gpu0", [1, 2, 3])]


def test_an_output_that_nobody_reads_is_released_at_once(plant: Plant) -> None:
    plant.join("gpu0")
    nodes = [node("load", "load_image", gives=[LATENT, LATENT]), node("next", reads=["load"])]
    plant.arrive("a", graph(*nodes))
    assert releases(plant.report("gpu0")) == [("gpu0", [2])]


def test_every_executor_that_was_sent_a_value_is_told_to_forget_it(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    nodes = [node("x"), node("y0", "op", reads=["x"]), node("y1", "op", reads=["x"])]
    plant.arrive("a", graph(*nodes))
    plant.report("gpu0")
    assert sorted(plant.busy()) == ["gpu0", "gpu1"]
    plant.report("gpu0")
    assert releases(plant.report("gpu1")) == [("gpu0", [1]), ("gpu1", [1, 1])]


def test_a_node_that_reads_a_value_twice_is_one_reader(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", graph(node("x"), node("y", reads=["x", "x"])))
    plant.report("gpu0")
    assert releases(plant.report("gpu0")) == [("gpu0", [1, 2])]


def test_scalars_and_tensors_inside_their_ref_are_never_released(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", graph(node("x", gives=[INT, MASK]), node("y", reads=["x", ("x", 1)])))
    plant.report("gpu0")
    assert releases(plant.report("gpu0")) == [("gpu0", [3])]


def test_releases_are_asked_for_before_new_work(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, None))
    plant.report("gpu0")
    kinds = [type(a) for a in plant.report("gpu0") if isinstance(a, Release | SendBatch)]
    assert kinds == [Release, SendBatch]


def test_what_a_request_held_is_released_when_it_is_cancelled(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", graph(node("x"), node("y", reads=["x"]), node("z", reads=["x", "y"])))
    plant.report("gpu0")
    assert releases(plant.cancel("a")) == []  # the batch that runs reads it
    assert releases(plant.report("gpu0")) == [("gpu0", [1])]
    plant.assert_empty()


def test_results_that_come_too_late_are_released(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, model("m")))
    report = plant.finish("gpu0")
    plant.cancel("a")
    assert releases(plant.happen(report)) == [("gpu0", [1])]
    plant.assert_empty()


def test_a_dead_executor_is_told_nothing(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, None))
    plant.report("gpu0")
    assert releases(plant.lose("gpu0")) == []


@pytest.mark.parametrize(
    ("dtype", "item_bytes"),
    [("float32", 4), ("bfloat16", 2), ("uint8", 1), ("bool", 1), ("float8_e4m3fn", 1)],
)
def test_the_size_of_a_value_follows_from_shape_and_dtype(dtype: str, item_bytes: int) -> None:
    key = TensorKey(executor=ExecutorId("gpu0"), incarnation="i1", tensor_id=TensorId(1))
    ref = TensorRef(key=key, endpoint="ipc://x", shape=(2, 3, 5), dtype=dtype)
    value = hold(TreeValue(tree=b"", tensors=(ref,)), ExecutorId("gpu0"), "i1")
    assert value.num_bytes == 30 * item_bytes


def test_a_scalar_has_no_size(plant: Plant) -> None:
    assert hold(ScalarValue(value=7), ExecutorId("gpu0"), "i1").num_bytes == 0
