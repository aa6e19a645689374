"""Random prompts: good ones lower to verified Graphs, bad ones are refused and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from nodeloom.graph_import.comfy.importer import grow, import_prompt, lower
from nodeloom.graph_import.comfy.problems import rejection_body
from nodeloom.graph_import.comfy.validate import Validated, validate
from nodeloom.graph_import.comfy.wired import allowed_types, template_id_of
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import Scalar
from nodeloom.graph_import.ir import Graph, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.nodes.schema import FileChoices, InputSpec
from nodeloom.graph_import.nodes.text_encoder_loaders import CLIP_TYPES, SD_CLIP
from nodeloom.graph_import.passes.verify import verify
from nodeloom.graph_import.types import MATCH_TYPE, SCALARS, connects, takes_literals

from .known_files import CHECKPOINT, PICTURE, KnownFiles, every_file
from .probes import recorded_registry

REGISTRY = Registry()
# What isn't drawn for its result, and what needs files of different text encoders.
LEFT_OUT = ("Save", "Preview", "DualCLIPLoader", "TripleCLIPLoader")
MAKERS = [c for c in REGISTRY.object_info(KnownFiles()) if not c.startswith(LEFT_OUT)]
OFTEN = [*MAKERS, *["KSampler", "GetImageSize", "ComfySwitchNode"] * 6]  # what makes graphs wait
SMALL = {"steps": (1, 4), "batch_size": (1, 3), "seed": (0, 5), "width": (16, 64)}
# What lowering may refuse: numbers that are out of range or make no schedule, texts that another
# family's encoder is asked for, hooks where there can be none.
BY_NUMBERS = ("KSampler", "ModelSampling", "CLIPTextEncode", "SamplerCustom", "SetClipHooks")
SHAPED = {
    c
    for c in MAKERS
    if c.startswith(BY_NUMBERS)
    or not {"SIGMAS", "SAMPLER"}.isdisjoint(port.type for port in REGISTRY[c].schema.outputs)
}
SIZE = {"width": 64, "height": 64, "batch_size": 1}


def literal(spec: InputSpec) -> st.SearchStrategy[Any]:
    """A value that the input may be given in the prompt."""
    options = spec.options or {}
    match spec.choices:
        case FileChoices(kind="input"):
            return st.sampled_from([PICTURE, f"{PICTURE} [input]"])
        case FileChoices(kind=kind):
            return st.sampled_from(every_file().choices(kind))
        case None if spec.type == "COMBO":  # a list that clients fetch
            return st.just(PICTURE)
        case tuple() if spec.choices == CLIP_TYPES:
            return st.just(SD_CLIP)
        case tuple() as choices:
            return st.sampled_from(choices)
    if spec.type == "INT":
        least, most = int(str(options.get("min", 0))), int(str(options.get("max", 64)))
        low, high = SMALL.get(spec.name, (least, most))
        return st.integers(max(low, least), max(high, least))
    if spec.type == "FLOAT":
        return st.floats(float(str(options.get("min", 0))), float(str(options.get("max", 64))))
    return st.booleans() if spec.type == "BOOLEAN" else st.text(max_size=5)


@dataclass
class Grown:
    """A good prompt so far, and the types that may come out of each output."""

    prompt: dict[str, Any] = field(default_factory=dict)
    outputs: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)

    def add(self, node_id: str, class_type: str, **inputs: object) -> None:
        schema = REGISTRY[class_type].schema
        self.prompt[node_id] = {"class_type": class_type, "inputs": inputs}
        templates = schema.output_matchtypes or (None,) * len(schema.outputs)
        for slot, (port, template) in enumerate(zip(schema.outputs, templates, strict=True)):
            followed = [s for s in schema.inputs if template and template_id_of(s) == template]
            types = [self._types(inputs[spec.name]) for spec in followed]
            self.outputs[node_id, slot] = frozenset({port.type}.union(*types) - {MATCH_TYPE})

    def sources(self, spec: InputSpec) -> list[list[object]]:
        """The links that may feed an input."""
        if spec.choices is not None:
            return []
        return [list(output) for output, types in self.outputs.items() if _fits(types, spec)]

    def fed(self) -> list[str]:
        """The classes of whose inputs each can be given."""
        found = set(self.outputs.values())
        return [c for c in OFTEN if all(any(_fits(t, s) for t in found) for s in SOCKETS[c])]

    def _types(self, given: object) -> frozenset[str]:
        if isinstance(given, list):
            return self.outputs[given[0], given[1]]
        return frozenset({"STRING" if isinstance(given, str) else "BOOLEAN"})


def _fits(types: frozenset[str], spec: InputSpec) -> bool:
    return _connect(types, spec.type) and _connect(types, str(allowed_types(spec)))


@cache
def _connect(types: frozenset[str], declared: str) -> bool:
    return all(connects(type_, declared) for type_ in types)


def ways(spec: InputSpec) -> list[str]:
    """The options of a choice that brings further inputs."""
    return [option["key"] for option in listed_options(spec)]


def listed_options(spec: InputSpec) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], (spec.options or {})["options"])


def given_inputs(class_type: str, chosen: Mapping[str, object]) -> list[InputSpec]:
    """The inputs of a node, those of the options chosen and two of each that grows among them."""
    found = []
    for spec in REGISTRY[class_type].schema.inputs:
        if spec.nested:
            ways = {o["key"]: o["inputs"]["required"] for o in listed_options(spec)}
            names = {
                f"{spec.name}.{name}" for name in ways[chosen.get(spec.name, next(iter(ways)))]
            }
            found += [one for one in spec.grown(names) if one.name in names]
        elif spec.grows is not None:
            found += spec.grown(f"{spec.name}.{spec.grows.name}{index}" for index in range(2))
        else:
            found.append(spec)
    return found


SOCKETS = {c: [s for s in given_inputs(c, {}) if not takes_literals(s.type)] for c in MAKERS}


@st.composite
def good_prompts(draw: st.DrawFn) -> dict[str, Any]:
    """Nodes one after another, each fed by earlier ones or by literals; everything is shown."""
    grown = Grown()
    grown.add("ckpt", "CheckpointLoaderSimple", ckpt_name=CHECKPOINT)
    grown.add("picture", "LoadImage", image=PICTURE)
    grown.add("latent", "EmptyLatentImage", **SIZE)
    grown.add("words", "CLIPTextEncode", text="x", clip=["ckpt", 1])
    grown.add("hooks", "CombineHooks2")
    grown.add("keyframe", "CreateHookKeyframe", strength_mult=0.5, start_percent=0.2)
    for index in range(draw(st.integers(1, 12))):
        class_type = draw(st.sampled_from(grown.fed()))
        inputs: dict[str, object] = {}
        for spec in REGISTRY[class_type].schema.inputs:
            if spec.nested:
                inputs[spec.name] = draw(st.sampled_from(ways(spec)))
        for spec in given_inputs(class_type, inputs):
            sources = grown.sources(spec)
            is_linked = bool(sources) and (spec.type not in SCALARS or draw(st.booleans()))
            inputs[spec.name] = draw(st.sampled_from(sources) if is_linked else literal(spec))
        grown.add(str(index), class_type, **inputs)
    for link in grown.sources(REGISTRY["VAEDecode"].schema.input("samples")):
        grown.add(f"decoded {link[0]} {link[1]}", "VAEDecode", samples=link, vae=["ckpt", 2])
    pictures = grown.sources(REGISTRY["PreviewImage"].schema.input("images"))
    for index, link in enumerate(pictures):
        grown.add(f"out{index}", "SaveImage", images=link, filename_prefix="p")
    return grown.prompt


def values_waited_for(graph: Graph) -> list[tuple[NodeId, int]]:
    return sorted({(e.source, e.port) for p in graph.pending for e in p.waits_for})


def lowered_with(
    valid: Validated, known: dict[tuple[NodeId, int], Scalar], older: Graph | None
) -> Graph | set[str]:
    """The Graph, or the nodes that a value which shapes them does not suit."""
    files = every_file()
    try:
        if older is None:
            return import_prompt(valid.prompt, valid.roots, REGISTRY, files)
        return grow(older, valid.prompt, valid.roots, REGISTRY, files, known)
    except ImportRejected as rejected:
        return {problem.node_id for problem in rejected.problems}


@settings(max_examples=300, deadline=None)
@given(prompt=good_prompts(), data=st.data())
def test_a_good_prompt_lowers_and_grows_to_the_same_graph_in_any_order(
    prompt: dict[str, Any], data: st.DataObject
) -> None:
    valid = validate(prompt, REGISTRY, every_file())
    assert valid.problems == ()
    known: dict[tuple[NodeId, int], Scalar] = {}
    graph = lowered_with(valid, known, None)
    while isinstance(graph, Graph) and (waited := values_waited_for(graph)):
        verify(graph)
        key = data.draw(st.sampled_from(waited))
        known[key] = data.draw(st.integers(1, 3))
        older, graph = graph, lowered_with(valid, known, graph)
        assert not isinstance(graph, Graph) or set(older.nodes) <= set(graph.nodes)
    if not isinstance(graph, Graph):
        refused = {valid.prompt.nodes[node_id].class_type for node_id in graph}
        assert refused <= SHAPED
        return
    verify(graph)
    assert graph.pending == ()
    assert {m.node_id for m in graph.members if m.is_output} == set(valid.roots)
    at_once = lower(valid.prompt, valid.roots, REGISTRY, every_file(), everywhere(known, valid))
    assert at_once.pending == ()
    assert {n.signature for n in at_once.nodes} >= {n.signature for n in graph.nodes}


def everywhere(
    known: dict[tuple[NodeId, int], Scalar], valid: Validated
) -> dict[tuple[NodeId, int], Scalar]:
    """The values for the twins too that `dedupe` took out: `lower` alone goes by id."""
    values = dict(known)
    while True:
        graph = lower(valid.prompt, valid.roots, REGISTRY, every_file(), values)
        nodes = graph.by_id()
        by_content = {
            (nodes[node_id].signature, port): value
            for (node_id, port), value in values.items()
            if node_id in nodes
        }
        more = {
            (node_id, port): by_content[nodes[node_id].signature, port]
            for node_id, port in values_waited_for(graph)
        }
        if not more:
            return values
        values |= more


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["__value__", "a", "inputs"]), inner, max_size=3)
    ),
    max_leaves=8,
)
IDS = st.sampled_from(["1", "2", "3", "4", "/", ""])
CLASSES = sorted(recorded_registry().object_info(KnownFiles()))
FIELDS = st.sampled_from(
    sorted({s.name for c in CLASSES for s in recorded_registry()[c].schema.inputs})
)
LINKS = st.tuples(IDS, st.integers(-3, 3) | JSON).map(list) | st.lists(IDS | JSON, max_size=3)


@st.composite
def bad_prompts(draw: st.DrawFn) -> Any:
    """Nodes with mostly wrong inputs, links in circles included."""
    nodes: dict[str, Any] = {}
    for node_id in draw(st.lists(IDS, unique=True, max_size=5)):
        class_type = draw(st.sampled_from(CLASSES))
        names = [spec.name for spec in recorded_registry()[class_type].schema.inputs]
        inputs = {name: draw(LINKS | JSON) for name in names if draw(st.integers(0, 9))}
        node = {"class_type": class_type, "inputs": inputs}
        match draw(st.integers(0, 12)):
            case 0:
                node["inputs"] = draw(JSON)
            case 1:
                node["class_type"] = draw(JSON)
            case 2:
                del node["inputs"]
        nodes[node_id] = node
    return nodes


@settings(max_examples=400, deadline=None)
@given(
    prompt=JSON
    | bad_prompts()
    | st.dictionaries(IDS, st.dictionaries(FIELDS | st.just("class_type"), JSON)),
    targets=st.none() | st.lists(IDS) | JSON,
)
def test_garbage_is_refused_in_words_and_nothing_else_happens(prompt: Any, targets: Any) -> None:
    before = repr(prompt)
    try:
        valid = validate(prompt, recorded_registry(), KnownFiles(), targets)
    except ImportRejected as rejected:
        body = rejection_body(rejected)
        json.dumps(body)
        assert body["error"]["type"]
        assert body["error"]["message"]
        for problem in rejected.problems:
            assert problem.node_id in prompt
            assert problem.details
    else:
        assert valid.roots
        json.dumps(valid.prompt.to_json())
    assert repr(prompt) == before
