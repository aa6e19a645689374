"""Random prompts: good ones lower to verified Graphs, bad ones are refused and nothing else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from nodeloom.graph_import.comfy.importer import grow, import_prompt, lower
from nodeloom.graph_import.comfy.problems import rejection_body
from nodeloom.graph_import.comfy.validate import Validated, validate
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import Scalar
from nodeloom.graph_import.ir import Graph, NodeId
from nodeloom.graph_import.nodes.loaders import CLIP_TYPES, SD_CLIP
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.nodes.schema import FileChoices, InputSpec
from nodeloom.graph_import.passes.verify import verify
from nodeloom.graph_import.types import SCALARS, connects, takes_literals

from .known_files import CHECKPOINT, PICTURE, KnownFiles, every_file
from .probes import recorded_registry

REGISTRY = Registry()
# A switch passes any type on, so that its output may not fit what it says it fits.
LEFT_OUT = ("Save", "Preview", "ComfySwitchNode")
MAKERS = [c for c in REGISTRY.object_info(KnownFiles()) if not c.startswith(LEFT_OUT)]
OFTEN = [*MAKERS, *["KSampler", "GetImageSize"] * 6]  # what makes graphs wait
SMALL = {"steps": (1, 4), "batch_size": (1, 3), "seed": (0, 5), "width": (16, 64)}


def literal(spec: InputSpec) -> st.SearchStrategy[Any]:
    """A value that the input may be given in the prompt."""
    options = spec.options or {}
    match spec.choices:
        case FileChoices(kind="input"):
            return st.sampled_from([PICTURE, f"{PICTURE} [input]"])
        case FileChoices(kind=kind):
            return st.sampled_from(every_file().choices(kind))
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


@st.composite
def good_prompts(draw: st.DrawFn) -> dict[str, Any]:
    """Nodes one after another, each fed by earlier ones or by literals; everything is shown."""
    prompt: dict[str, Any] = {
        "ckpt": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": CHECKPOINT}},
        "picture": {"class_type": "LoadImage", "inputs": {"image": PICTURE}},
        "latent": {
            "class_type": "EmptyLatentImage",
            "inputs": {"width": 64, "height": 64, "batch_size": 1},
        },
        "words": {"class_type": "CLIPTextEncode", "inputs": {"text": "x", "clip": ["ckpt", 1]}},
    }
    for index in range(draw(st.integers(1, 12))):
        class_type = draw(st.sampled_from([c for c in OFTEN if _can_be_fed(prompt, c)]))
        inputs = {}
        for spec in REGISTRY[class_type].schema.inputs:
            sources = _sources(prompt, spec)
            is_linked = bool(sources) and (spec.type not in SCALARS or draw(st.booleans()))
            inputs[spec.name] = draw(st.sampled_from(sources) if is_linked else literal(spec))
        prompt[str(index)] = {"class_type": class_type, "inputs": inputs}
    for link in _sources(prompt, REGISTRY["VAEDecode"].schema.input("samples")):
        inputs = {"samples": link, "vae": ["ckpt", 2]}
        prompt[f"decoded {link[0]}"] = {"class_type": "VAEDecode", "inputs": inputs}
    pictures = _sources(prompt, REGISTRY["PreviewImage"].schema.input("images"))
    for index, link in enumerate(pictures):
        saver = {"class_type": "SaveImage", "inputs": {"images": link, "filename_prefix": "p"}}
        prompt[f"out{index}"] = saver
    return prompt


def _can_be_fed(prompt: dict[str, Any], class_type: str) -> bool:
    specs = REGISTRY[class_type].schema.inputs
    return all(takes_literals(spec.type) or _sources(prompt, spec) for spec in specs)


def _sources(prompt: dict[str, Any], spec: InputSpec) -> list[list[object]]:
    if spec.choices is not None:
        return []
    return [
        [node_id, slot]
        for node_id, node in prompt.items()
        for slot, port in enumerate(REGISTRY[node["class_type"]].schema.outputs)
        if connects(port.type, spec.type)
    ]


def values_waited_for(graph: Graph) -> list[tuple[NodeId, int]]:
    return sorted({(e.source, e.port) for p in graph.pending for e in p.waits_for})


def lowered_with(
    valid: Validated, known: dict[tuple[NodeId, int], Scalar], older: Graph | None
) -> Graph | set[str]:
    """The Graph, or the classes of the nodes that a value which shapes them does not suit."""
    files = every_file()
    try:
        if older is None:
            return import_prompt(valid.prompt, valid.roots, REGISTRY, files)
        return grow(older, valid.prompt, valid.roots, REGISTRY, files, known)
    except ImportRejected as rejected:
        return {problem.class_type for problem in rejected.problems}


@settings(max_examples=100, deadline=None)
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
        assert graph <= {
            "KSampler",
            "KSamplerAdvanced",
        }  # folded in: out of range, or a denoise of almost nothing
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
