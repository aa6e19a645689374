"""Approximate caching, opt-in: sampling starts from latents that a similar text left at step k.

What is similar is known when the text is encoded. So the pass puts a lookup behind the text encoder
and leaves the sampling pending on its answer. When that is there, the graph grows without the first
k steps, or with all of them and nodes that keep the latents at the steps where others may start.

A run is treated so if it starts from an empty latent and is guided by two encoded texts alone. What
it is looked up under holds all that its first steps depend on but for the seed and the text: model
and patches, sampler, sigmas, cfg, negative text, size. It is judged by what its first evaluation
reads, and nothing that becomes known later changes that. Source: LegoDiffusion (arXiv 2604.08123),
sections 4.2 and 7.4, after Nirvana (NSDI 2024).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from ..builder import rebuild
from ..families import course_of
from ..ir import Edge, Graph, Node, NodeId, ParamValue, Pending
from ..sampling.samplers import sampler
from .context import PassContext
from .edit import Edit
from .options import ApproximateCache
from .prune import prune

VERSION: Final = 1  # of what is kept under a key
MISS: Final = -1  # the level that a lookup gives when nothing is similar enough


@dataclass(slots=True, frozen=True)
class _Level:
    """Skip `num_evaluations` (all of the first steps), if something under `key` is similar."""

    num_evaluations: int
    key: str
    similarity: float


@dataclass(slots=True, frozen=True)
class _Run:
    """Evaluations that differ in nothing but their state, from the first one on."""

    begin: Node
    evaluations: tuple[Node, ...]
    positive: Edge
    levels: tuple[_Level, ...]

    @property
    def lookup_id(self) -> NodeId:
        return NodeId(f"{self.evaluations[0].id}-lookup")

    @property
    def answer(self) -> tuple[Edge, Edge]:
        """Where the level and the entry come from."""
        return Edge(source=self.lookup_id, port=0), Edge(source=self.lookup_id, port=1)


def approx_cache(graph: Graph, context: PassContext) -> Graph:
    """Look up what may be skipped, or skip it, as far as `context.known` has the answers."""
    options = context.options.approximate_cache
    runs = [] if options is None else list(_runs(graph, context, options))
    if options is None or not runs:
        return graph
    nodes, edit, open_runs = graph.by_id(), Edit(), []
    for run in runs:
        _look_up(run, nodes, options, edit)
        level, entry = (context.known.get((edge.source, edge.port)) for edge in run.answer)
        if not isinstance(level, int):
            open_runs.append(run)
        elif level == MISS:
            _keep(run, options, edit)
        else:
            _skip(run, run.levels[level], str(entry), options, edit)
    edited = edit.applied(graph)
    if edit.renamed:
        edited = prune(edited, context)
    return _leave_pending(edited, open_runs) if open_runs else edited


def _look_up(
    run: _Run, nodes: Mapping[NodeId, Node], options: ApproximateCache, edit: Edit
) -> None:
    params: dict[str, ParamValue] = {"folder": options.folder}
    for index, level in enumerate(run.levels):
        params |= {f"key_{index}": level.key, f"similarity_{index}": level.similarity}
    encoder = nodes[run.positive.source]
    edit.add(run.lookup_id, "latents_lookup", encoder, params, {"positive": run.positive})


def _keep(run: _Run, options: ApproximateCache, edit: Edit) -> None:
    """Keep the state at every level that the run has come to."""
    common: dict[str, ParamValue] = {"folder": options.folder, "max_bytes": options.max_bytes}
    for level in run.levels:
        if level.num_evaluations <= len(run.evaluations):
            last = run.evaluations[level.num_evaluations - 1]
            node_id = NodeId(f"{last.id}-store")
            inputs = {"state": Edge(source=last.id, port=0), "positive": run.positive}
            edit.add(node_id, "latents_store", last, {**common, "key": level.key}, inputs)
            edit.sinks.append(node_id)


def _skip(run: _Run, level: _Level, entry: str, options: ApproximateCache, edit: Edit) -> None:
    """Whoever reads the state after the skipped evaluations reads the entry instead."""
    if level.num_evaluations > len(run.evaluations):
        return  # ControlNets join before: it starts at the start
    resume_id = NodeId(f"{run.evaluations[0].id}-resume")
    last = run.evaluations[level.num_evaluations - 1]
    params: dict[str, ParamValue] = {"folder": options.folder, "entry": entry}
    params |= {name: value for name, value in run.begin.params if name == "seed"}
    seed = {name: edge for name, edge in run.begin.inputs if name == "seed"}
    edit.add(resume_id, "latents_resume", last, params, seed)
    edit.renamed[last.id] = resume_id


def _leave_pending(graph: Graph, runs: Iterable[_Run]) -> Graph:
    """Without the submitted nodes that these runs are part of, and all that is made of them."""
    nodes = graph.by_id()
    waits_for: dict[str, tuple[Edge, ...]] = {}
    for run in runs:
        owner = nodes[run.evaluations[0].id].origin.node_id
        waits_for[owner] = (*waits_for.get(owner, ()), *run.answer)
    gone = set(waits_for)
    num_gone = 0
    while num_gone < len(gone):
        num_gone = len(gone)
        for node in graph.nodes:
            if any(nodes[edge.source].origin.node_id in gone for _, edge in node.inputs):
                gone.add(node.origin.node_id)
        gone.update(m.node_id for m in graph.members if m.shared_with in gone)
    pending = [
        Pending(
            id=NodeId(m.node_id), class_type=m.class_type, waits_for=waits_for.get(m.node_id, ())
        )
        for m in graph.members
        if m.node_id in gone
    ]
    for other in graph.pending:
        is_fed = all(nodes[edge.source].origin.node_id not in gone for edge in other.waits_for)
        pending.append(other if is_fed else msgspec.structs.replace(other, waits_for=()))
    left = msgspec.structs.replace(
        graph,
        pending=tuple(pending),
        sinks=tuple(sink for sink in graph.sinks if nodes[sink].origin.node_id not in gone),
    )
    members = [
        msgspec.structs.replace(m, nodes=(), shared_with=None) if m.node_id in gone else m
        for m in graph.members
    ]
    return rebuild(left, [n for n in graph.nodes if n.origin.node_id not in gone], members)


def _runs(graph: Graph, context: PassContext, options: ApproximateCache) -> Iterator[_Run]:
    nodes = graph.by_id()
    readers: dict[NodeId, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "denoise":
            readers.setdefault(dict(node.inputs)["state"].source, []).append(node)
    for begin in graph.nodes:
        if begin.op != "sample_begin" or not _is_from_nothing(begin, nodes):
            continue
        for first in readers.get(begin.id, ()):
            levels = _levels(begin, first, nodes, context, options)
            if levels and _is_guided_by_texts(first, nodes):
                evaluations = tuple(_alike(first, readers))
                yield _Run(begin, evaluations, dict(first.inputs)["positive"], levels)


def _is_from_nothing(begin: Node, nodes: Mapping[NodeId, Node]) -> bool:
    latent = nodes[dict(begin.inputs)["latent"].source]
    return latent.op == "empty_latent" and dict(begin.params).get("add_noise") is True


def _is_guided_by_texts(first: Node, nodes: Mapping[NodeId, Node]) -> bool:
    inputs = {name: nodes[edge.source].op for name, edge in first.inputs if "patch_" not in name}
    texts = {"positive": "text_encode", "negative": "text_encode"}
    return inputs == {"state": "sample_begin", **texts}


def _alike(first: Node, readers: Mapping[NodeId, list[Node]]) -> Iterator[Node]:
    """`first` and the evaluations behind it that differ from it in their state alone."""
    node: Node | None = first
    while node is not None:
        yield node
        content = _content(node)
        node = next((n for n in readers.get(node.id, ()) if _content(n) == content), None)


def _content(node: Node) -> object:
    params = {name: value for name, value in node.params if name != "evaluation"}
    inputs = {name: edge for name, edge in node.inputs if name != "state"}
    return node.model, params, inputs


def _levels(
    begin: Node,
    first: Node,
    nodes: Mapping[NodeId, Node],
    context: PassContext,
    options: ApproximateCache,
) -> tuple[_Level, ...]:
    """What may be skipped of a run, the most first; levels of less than a step are left out."""
    params, inputs = dict(first.params), dict(first.inputs)
    sigmas = params["sigmas"]
    if not isinstance(sigmas, tuple) or "cfg" not in params or "negative" not in inputs:
        return ()
    text_encoder = nodes[inputs["positive"].source]
    loras = context.options.async_lora if first.model and first.model.patches else None
    shared: list[object] = [VERSION, first.model, sorted(params.items()), loras]
    shared += [nodes[dict(begin.inputs)["latent"].source].signature, text_encoder.model]
    shared += [nodes[inputs["negative"].source].signature]
    text = str(params.get("model_sampling", ""))
    course = course_of(str(params["family"]), text, sigmas)
    plan = sampler(str(params["sampler"])).plan(course)
    found: dict[int, _Level] = {}
    for wanted in sorted(options.levels, key=lambda level: -level.similarity):
        num_steps = math.floor(wanted.skip * (len(sigmas) - 1) + 1e-9)
        if 0 < num_steps < len(sigmas) - 1:
            content = msgspec.msgpack.encode([*shared, num_steps])
            found[num_steps] = _Level(
                num_evaluations=sum(evaluation.step < num_steps for evaluation in plan),
                key=hashlib.sha256(content).hexdigest(),
                similarity=wanted.similarity,
            )
    return tuple(found[num_steps] for num_steps in sorted(found, reverse=True))
