"""Requests that call one model again and again, and what to see of the chains that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.graphs import graph, node
from kit.plant import Plant, names
from kit.worker import SHAPE
from nodeloom.graph_import.handles import ModelRef, Role
from nodeloom.graph_import.ir import Graph, Node
from nodeloom.graph_import.types import CONDITIONING, IMAGE, RESIDUALS, SAMPLER_STATE
from nodeloom.runtime.ids import ExecutorId

STATE_SHAPE = (SHAPE,)  # what a step of `sampled` reads

PAYS: Mapping[int, float] = {size: 0.1 + 0.001 * size for size in (1, 2, 4, 8)}
COSTS_THE_SAME: Mapping[int, float] = {size: 0.1 * size for size in (1, 2, 4, 8)}


def sampled(
    num_steps: int,
    ref: ModelRef,
    *,
    text: ModelRef | None = None,
    vae: ModelRef | None = None,
    controls: Sequence[ModelRef] = (),
) -> Graph:
    """`begin`, the steps `s0`, `s1` ..., and `end`; with a VAE, `decode` and `save` after that.

    With a text encoder, `text` comes first and only `begin` reads it. Each step has a ControlNet
    `c0.0`, `c0.1` ... for each of `controls`, which it reads over a deferred edge.
    """
    nodes: list[Node] = []
    if text is not None:
        nodes.append(node("text", "text_encode", ref=text, gives=[CONDITIONING]))
    reads = [] if text is None else ["text"]
    nodes.append(node("begin", "sample_begin", reads=reads, gives=[SAMPLER_STATE]))
    previous = "begin"
    for step in range(num_steps):
        late = [f"c{step}.{index}" for index in range(len(controls))]
        nodes += [
            node(name, "controlnet", ref=control, reads=[previous], gives=[RESIDUALS])
            for name, control in zip(late, controls, strict=True)
        ]
        sources = {"state": previous} | {name: name for name in late}
        nodes.append(
            node(
                f"s{step}", "denoise", ref=ref, reads=sources, gives=[SAMPLER_STATE], deferred=late
            )
        )
        previous = f"s{step}"
    nodes.append(node("end", "sample_end", reads=[previous]))
    if vae is not None:
        assert vae.key.role is Role.VAE
        nodes.append(node("decode", "vae_decode", ref=vae, reads=["end"], gives=[IMAGE]))
        nodes.append(node("save", "save_image", reads=["decode"], gives=[]))
    return graph(*nodes)


def teach(
    plant: Plant,
    ref: ModelRef,
    costs: Mapping[int, float],
    *,
    op: str = "denoise",
    shape: tuple[tuple[int, ...], ...] = STATE_SHAPE,
) -> None:
    """Batches of so many calls were measured to take so many seconds."""
    profile = plant.scheduler.profiles.batches(op, ref.key, shape)
    for size, seconds_s in costs.items():
        for _ in range(2):  # the first one says nothing
            profile.learn(size, seconds_s, "elsewhere")


def sent(plant: Plant, name: str) -> list[str]:
    """What an executor was sent and has not done, in order; `a/s1 b/s1` is one batch."""
    return [" ".join(names(batch)) for batch in plant.workers[ExecutorId(name)].batches]


def order_of_work(plant: Plant, name: str, *, run_s: float = 0.1) -> list[str]:
    """What an executor really runs from now on, batch by batch, until nothing is left."""
    order = []
    while plant.running(name):
        if not plant.workers[ExecutorId(name)].is_stopped:
            order.append(" ".join(plant.running(name)))
        plant.report(name, run_s=run_s)
    return order
