"""What to see of chains, and how to come to a scheduler that has some."""

from __future__ import annotations

from collections.abc import Mapping

from kit.graphs import chain, model
from kit.loops import PAYS, sampled, sent, teach
from kit.plant import Plant, names
from nodeloom.runtime.scheduler.actions import (
    AnyAction,
    NodeFinished,
    NodeStarted,
    Recall,
    SendBatch,
)

DENOISER = model("m", size_bytes=10**6)


def recalled(plant: Plant, actions: list[AnyAction]) -> list[str]:
    """What an answer calls back."""
    by_id = {
        action.batch.batch_id: " ".join(names(action.batch))
        for _, _, answer in plant.log
        for action in answer
        if isinstance(action, SendBatch)
    }
    return [by_id[i] for a in actions if isinstance(a, Recall) for i in a.batch_ids]


def started(actions: list[AnyAction]) -> list[str]:
    return [f"{a.request_id}/{a.node_id}" for a in actions if isinstance(a, NodeStarted)]


def finished(actions: list[AnyAction]) -> list[str]:
    return [f"{a.request_id}/{a.node_id}" for a in actions if isinstance(a, NodeFinished)]


def warm(plant: Plant, *executors: str) -> None:
    """Every executor has the denoiser, and two calls of it are cheaper together."""
    for name in executors:
        plant.join(name)
    for index in range(len(executors)):
        plant.arrive(f"warm{index}", chain(40, DENOISER), number=index - 9.0)
    plant.run_all()
    assert all(worker.resident for worker in plant.workers.values())
    teach(plant, DENOISER, PAYS)
    teach(plant, DENOISER, PAYS, shape=())


def shared(plant: Plant, num_steps: int = 6) -> None:
    """`a` and `b` go step by step together on `gpu0`, in one chain."""
    warm(plant, "gpu0")
    plant.arrive("hold", chain(1, None), number=-1.0)
    plant.arrive("a", chain(num_steps, DENOISER))
    plant.arrive("b", chain(num_steps, DENOISER))
    plant.report("gpu0")
    assert sent(plant, "gpu0")[:3] == ["a/s0 b/s0", "a/s1 b/s1", "a/s2 b/s2"]


def beside(plant: Plant, costs: Mapping[int, float]) -> None:
    """`a` is sampled on `gpu0`; `gpu1` does what needs no model; `b` is ready to be sampled."""
    plant.join("gpu0")
    plant.arrive("warm", sampled(1, DENOISER), number=-1.0)
    plant.report("gpu0")
    plant.report("gpu0", load_s=100.0)
    plant.run_all()
    teach(plant, DENOISER, costs)
    plant.join("gpu1")
    plant.arrive("a", sampled(9, DENOISER))
    plant.report("gpu0")
    plant.arrive("b", sampled(9, DENOISER), number=1.0)
    assert (plant.running("gpu0"), plant.running("gpu1")) == (["a/s0"], ["b/begin"])
