"""Asynchronous LoRA loading, opt-in: the first steps do without LoRAs that are still being fetched.

A `patch_fetch` node, which reads the whole file, becomes a trigger, which has the system read it
and doesn't wait. The first m steps run on the base model. A check before step m + 1 waits for the
file, and the evaluations from there on wait for the check. The number m is the request's or follows
from the files' sizes, never from the clock: equal requests give equal pictures.

Only a run that begins without them gains: its texts are encoded without these LoRAs, and nothing
that it starts from was sampled. Each evaluation is judged by what it reads alone, so nothing that
becomes known later changes what was decided. Source: LegoDiffusion (arXiv 2604.08123), sections
2.1, 4.2 and 7.4, after Katz (ATC 2025).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from ..families import course_of
from ..handles import FileIdentity, ModelRef, Patch
from ..ir import Edge, Graph, Node, NodeId
from ..nodes.lowering import dag_id
from ..sampling.base import Course
from ..sampling.samplers import sampler
from .context import PassContext
from .edit import Edit
from .options import AsyncLora
from .prune import prune

MOST_STEPS: Final = 0.5  # of a run may be taken without its LoRAs
# What reads a run's state within the run.
SAMPLING: Final = frozenset({"denoise", "denoise_hooked", "controlnet"})

Checks = dict[FileIdentity, Edge]  # a patch file, and what says that it is there


def async_lora(graph: Graph, context: PassContext) -> Graph:
    """First steps on the base model, later ones behind checks; the same graph if none may be."""
    options = context.options.async_lora
    if options is None:
        return graph
    nodes, edit, checks = graph.by_id(), Edit(), dict[NodeId, Checks]()
    beginnings = _beginnings(nodes)
    for node in graph.nodes:
        beginning = beginnings[node.id]
        if node.op == "denoise" and node.model is not None and beginning is not None:
            fetches = [nodes[edge.source] for name, edge in node.inputs if _is_patch(name)]
            if fetches and beginning.isdisjoint(fetch.id for fetch in fetches):
                _decide(node, node.model, fetches, options, edit, checks)
    if not edit.changed:
        return graph
    for node in graph.nodes:
        if node.op == "patch_fetch":
            edit.add(_trigger_id(node), "patch_trigger", node, dict(node.params), {})
    return prune(edit.applied(graph), context)


def _beginnings(nodes: Mapping[NodeId, Node]) -> dict[NodeId, frozenset[NodeId] | None]:
    """The fetch nodes that a node waits for, but for those of sampling steps themselves.

    None: it reads what came out of another run, by whose end the files were there.
    """
    found: dict[NodeId, frozenset[NodeId] | None] = {}
    for node in nodes.values():
        is_step, own = node.op == "denoise", {node.id} if node.op == "patch_fetch" else set()
        read = [nodes[e.source] for name, e in node.inputs if not (is_step and _is_patch(name))]
        waited = [found[source.id] for source in read]
        is_behind = node.op not in SAMPLING and any(source.op == "denoise" for source in read)
        known = [fetches for fetches in waited if fetches is not None]
        is_behind = is_behind or len(known) < len(waited)
        found[node.id] = None if is_behind else frozenset(own).union(*known)
    return found


def _decide(
    node: Node,
    model: ModelRef,
    fetches: Sequence[Node],
    options: AsyncLora,
    edit: Edit,
    checks: dict[NodeId, Checks],
) -> None:
    """An evaluation on a patched model: without the patches, or waiting for their checks."""
    params, inputs = dict(node.params), dict(node.inputs)
    text = str(params.get("model_sampling", ""))
    sigmas = params["sigmas"]
    if not isinstance(sigmas, tuple):
        raise TypeError(f"the sigmas of {node.id} are {sigmas!r}")
    course = course_of(str(params["family"]), text, sigmas)
    steps = _steps(str(params["sampler"]), course)
    num_bare = _num_bare(options, model.patches, steps[-1] + 1)
    if not num_bare:
        return
    if steps[int(str(params["evaluation"]))] < num_bare:
        inputs = {name: edge for name, edge in inputs.items() if not _is_patch(name)}
        model = msgspec.structs.replace(model, patches=())
    else:
        known = checks[node.id] = dict(checks.get(inputs["state"].source, {}))
        for index, (patch, fetch) in enumerate(zip(model.patches, fetches, strict=True)):
            if patch.file not in known:
                trigger = Edge(source=_trigger_id(fetch), port=0)
                needs = {"trigger": trigger, "state": inputs["state"]}
                check_id, file = NodeId(f"{node.id}-check-{index}"), dict(fetch.params)
                known[patch.file] = edit.add(
                    check_id, "patch_check", node, file, needs, is_before=True
                )
            inputs[f"patch_{index}"] = known[patch.file]
    edit.changed[node.id] = msgspec.structs.replace(node, model=model, inputs=tuple(inputs.items()))


def _num_bare(options: AsyncLora, patches: tuple[Patch, ...], num_steps: int) -> int:
    """How many of a run's steps are taken without these patches."""
    size_bytes = sum(file.size_bytes for file in {patch.file for patch in patches})
    fetch_s = size_bytes / options.fetch_bytes_per_s
    wanted = math.ceil(fetch_s / options.step_s) if options.steps is None else options.steps
    return min(wanted, math.floor(num_steps * MOST_STEPS))


@lru_cache(maxsize=8)
def _steps(sampler_name: str, course: Course) -> tuple[int, ...]:
    """The step of each evaluation."""
    return tuple(evaluation.step for evaluation in sampler(sampler_name).plan(course))


def _trigger_id(fetch: Node) -> NodeId:
    return dag_id(fetch.origin.node_id, "trigger")


def _is_patch(name: str) -> bool:
    return name.startswith("patch_")
