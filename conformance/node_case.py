"""One case of nodes.json: its node, lowered on the recorded inputs, run op by op, and compared.

Which classes are whose: `STEERING` classes take or give what steers a denoiser and have a module of
their own; all others are `nodes.py`'s.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import torch
from nodeloom.graph_import.builder import GraphBuilder
from nodeloom.graph_import.catalog import Catalog
from nodeloom.graph_import.ir import Edge, Node, NodeId, Origin
from nodeloom.graph_import.nodes.lists import lower_node
from nodeloom.graph_import.nodes.literals import InputRefused
from nodeloom.graph_import.nodes.lowering import KnownValues, Lowering, NeedsValue
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.nodes.schema import ports
from nodeloom.graph_import.nodes.values import (
    Constant,
    EdgeList,
    HooksValue,
    ListValue,
    NoiseValue,
    OperationValue,
    SamplerValue,
    SigmasValue,
    Steering,
    Value,
)
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext
from nodeloom.runtime.ops.registry import body
from nodeloom.runtime.sampling.preview import Previews
from nodeloom.runtime.values import AvLatent, Conditioning, Latent
from safetensors import safe_open

from .case import Outcome, close, equal, worst
from .cond_entries import conditioning_outcome, wrapped

TOLERANCE: Final = 1e-5
SOURCE: Final = "source"
STEERING: Final = frozenset({"CONDITIONING", "HOOKS", "TIMESTEPS_RANGE"})
Recorded = Mapping[str, Any]


def recorded_cases(folder: Path) -> Iterator[tuple[str, Recorded]]:
    """Every case's name, and the case with what its `@inputs` stand for."""
    recorded = json.loads((folder / "nodes.json").read_text("utf-8"))
    for case in recorded["cases"]:
        given = {
            name: _described(recorded["inputs"], value) for name, value in case["inputs"].items()
        }
        yield f"nodes/{case['node']}/{case['case']}", {**case, "inputs": given}


def steering_classes(goldens: Path) -> frozenset[str]:
    """The classes that take or give what steers a denoiser."""
    classes = json.loads((goldens / "object_info.json").read_text("utf-8"))
    return frozenset(n for n, cls in classes.items() if not STEERING.isdisjoint(_types(cls)))


def compared(goldens: Path, case: Recorded) -> Outcome:
    """How far our outputs are from the recorded ones."""
    with safe_open(goldens / "nodes.safetensors", "pt") as tensors:
        outputs = Evaluation(tensors, case["node"]).run(case["inputs"])
        outcomes = [
            outcome_of(tensors, ours, theirs)
            for slot, recorded in enumerate(case["outputs"])
            for ours, theirs in zip(outputs[slot], recorded, strict=True)
        ]
    return worst(outcomes) if outcomes else Outcome(0.0, 0.0)


def refused(goldens: Path, case: Recorded) -> Outcome:
    """Where ComfyUI raised an error we must give one, too: a refusal, or a node that fails."""
    with safe_open(goldens / "nodes.safetensors", "pt") as tensors:
        try:
            Evaluation(tensors, case["node"]).run(case["inputs"])
        except (InputRefused, NodeFailed):
            return Outcome(0.0, 0.0)
    return Outcome(float("inf"), 0.0, f"it runs; ComfyUI: {case['error']}"[:300])


class Evaluation:
    """One node, lowered on inputs that are there, and its ops run as executors run them."""

    def __init__(self, tensors: Any, class_type: str) -> None:
        self._tensors = tensors
        self._class_type = class_type
        self._schema = Registry()[class_type].schema
        self._builder = GraphBuilder()
        self._values: dict[tuple[NodeId, int], Any] = {}

    def run(self, given: Recorded) -> list[list[Any]]:
        """The list of values of each output.

        Raises: InputRefused; NodeFailed.
        """
        inputs = {name: self._lowered(name, value) for name, value in given.items()}
        known: dict[tuple[NodeId, int], Any] = {}
        while True:
            node = self._lowering(inputs, known)
            try:
                outputs = lower_node(Registry()[self._class_type], node)
                break
            except NeedsValue as needs:
                self._evaluate()
                known |= {(e.source, e.port): self._values[e.source, e.port] for e in needs.edges}
                self._builder.take_back(node.nodes)
        self._evaluate()
        return [self._items(value) for value in outputs]

    def _lowering(self, inputs: Mapping[str, Value], known: Mapping[Any, Any]) -> Lowering:
        return Lowering(
            node_id="1",
            schema=self._schema,
            inputs=inputs,
            known=KnownValues(by_edge=known),
            catalog=cast(Catalog, None),
            builder=self._builder,
        )

    def _lowered(self, name: str, value: Any) -> Value:
        if isinstance(value, list):
            return ListValue(
                items=tuple(self._lowered(f"{name}-{i}", item) for i, item in enumerate(value))
            )
        if isinstance(value, torch.Tensor | Conditioning):
            return self._source(name, value)
        if not isinstance(value, Mapping):
            return Constant(value=value)
        if "object" in value:
            return _made(value["object"])
        read = value_of(self._tensors, value)
        if self._schema.input(name.partition("-")[0]).type == "SIGMAS":
            return SigmasValue(sigmas=tuple(read.tolist()))
        return self._source(name, read)

    def _source(self, name: str, value: Any) -> Edge:
        """An edge that brings `value`."""
        node_id = NodeId(f"{SOURCE}-{name}")
        (edge,) = self._builder.add(
            node_id,
            SOURCE,
            params={},
            inputs={},
            outputs=ports(value="*"),
            origin=Origin(node_id=node_id, class_type=SOURCE),
        )
        self._values[node_id, 0] = value
        return edge

    def _items(self, value: Value | EdgeList) -> list[Any]:
        match value:
            case ListValue(items=items):
                return [one for item in items for one in self._items(item)]
            case EdgeList(edge=edge):
                return list(self._values[edge.source, edge.port])
            case Edge(source=source, port=port) | Steering(edge=Edge(source=source, port=port)):
                return [self._values[source, port]]
            case HooksValue(hooks=()):
                return [None]
            case Constant(value=constant):
                return [constant]
            case SigmasValue(sigmas=sigmas):
                return [torch.tensor(sigmas, dtype=torch.float32)]
            case _:
                return [value]

    def _evaluate(self) -> None:
        for node in self._builder.build().nodes:
            if node.op != SOURCE and (not node.outputs or (node.id, 0) not in self._values):
                self._run(node)

    def _run(self, node: Node) -> None:
        edges = {name: self._values[edge.source, edge.port] for name, edge in node.inputs}
        call = OpCall(
            request_id=RequestId("r"),
            node_id=node.id,
            args={**dict(node.params), **edges},
            hidden={},
        )
        (result,) = body(node.op)(context_in(Path("/nonexistent")), [call])
        for port, value in enumerate(result.outputs):
            self._values[node.id, port] = value


def context_in(folder: Path) -> OpContext:
    """What an op that needs no model gets; all its folders are `folder`."""
    return OpContext(
        model=None,
        folders=Folders(input=folder, output=folder, temp=folder, saves=folder),
        check_cancelled=lambda: None,
        is_strict=False,
        previews=Previews(64, (), "cpu"),
        is_metadata_disabled=False,
    )


def value_of(tensors: Any, recorded: Recorded) -> Any:
    """A recorded tensor, LATENT or CONDITIONING as our ops take it."""
    if "list" in recorded:
        return wrapped(tensors, recorded)
    if "dict" not in recorded:
        return tensors.get_tensor(recorded["tensor"])
    parts = recorded["dict"]
    numbers = parts.get("batch_index")
    return Latent(
        samples=tensors.get_tensor(parts["samples"]["tensor"]),
        noise_mask=tensors.get_tensor(parts["noise_mask"]["tensor"])
        if "noise_mask" in parts
        else None,
        batch_index=tuple(n["value"] for n in numbers["list"]) if numbers else None,
    )


def outcome_of(tensors: Any, ours: Any, recorded: Recorded) -> Outcome:
    """How far one value is from the recorded one."""
    match ours:
        case Latent():
            return _latent_outcome(tensors, ours, recorded)
        case Conditioning():
            return conditioning_outcome(ours, wrapped(tensors, recorded), TOLERANCE)
        case tuple():
            return equal({"list": [{"value": item} for item in ours]}, dict(recorded))
        case AvLatent():
            return equal({"dict": {"samples": {"object": "NestedTensor"}}}, dict(recorded))
        case torch.Tensor():
            return _tensor_outcome(tensors, ours, recorded)
        case SamplerValue():
            return equal({"object": "KSAMPLER"}, dict(recorded))
        case OperationValue():
            return equal({"object": "function"}, dict(recorded))
        case NoiseValue(seed=seed):
            kind = "Noise_EmptyNoise" if seed is None else "Noise_RandomNoise"
            return equal({"object": kind}, dict(recorded))
        case _:
            return equal({"value": ours}, dict(recorded))


def _latent_outcome(tensors: Any, ours: Latent, recorded: Recorded) -> Outcome:
    parts = {"samples": ours.samples, "noise_mask": ours.noise_mask}
    given = {name: part for name, part in parts.items() if part is not None}
    theirs = dict(recorded["dict"])
    numbers = theirs.pop("batch_index", None)
    outcomes = [
        equal(sorted(given), sorted(theirs)),
        equal(
            None if ours.batch_index is None else list(ours.batch_index),
            None if numbers is None else [n["value"] for n in numbers["list"]],
        ),
    ]
    outcomes += [outcome_of(tensors, part, theirs[n]) for n, part in given.items() if n in theirs]
    return worst(outcomes)


def _tensor_outcome(tensors: Any, ours: torch.Tensor, recorded: Recorded) -> Outcome:
    if "shape" not in recorded:
        return equal(list(ours.shape), dict(recorded))
    if "constant" in recorded:
        return close(ours, torch.full(recorded["shape"], recorded["constant"]), TOLERANCE)
    if list(ours.shape) != recorded["shape"]:
        return equal(list(ours.shape), recorded["shape"])
    sampled = ours.flatten()[:: recorded["sampled_every"]] if "sampled_every" in recorded else ours
    return close(sampled, tensors.get_tensor(recorded["tensor"]), TOLERANCE)


def _made(written: str) -> Value:
    """What the node class in `NAME {'input': value}` makes."""
    class_type, _, inputs = written.partition(" ")
    cls = Registry()[class_type]
    node = Lowering(
        node_id="made",
        schema=cls.schema,
        inputs={n: Constant(value=v) for n, v in ast.literal_eval(inputs).items()},
        known=KnownValues(),
        catalog=cast(Catalog, None),
        builder=GraphBuilder(),
    )
    (value,) = cls.lower(node)
    return value


def _described(inputs: Recorded, value: Any) -> Any:
    """An input as the case gives it, with what its `@name` stands for."""
    if isinstance(value, list):
        return [_described(inputs, item) for item in value]
    if isinstance(value, str) and value.startswith("@"):
        return inputs[value[1:]]
    return value


def _types(described: Recorded) -> set[str]:
    """The types of a class's inputs and outputs."""
    given = [config[0] for part in described["input"].values() for config in part.values()]
    return {type_ for type_ in (*given, *described["output"]) if isinstance(type_, str)}
