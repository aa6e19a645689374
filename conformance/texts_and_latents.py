"""Cases of nodes.json for texts, latents, lists and switches: lowered, then run op by op."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import torch
from nodeloom.graph_import.builder import GraphBuilder
from nodeloom.graph_import.catalog import Catalog
from nodeloom.graph_import.ir import Edge, Node, NodeId, Origin
from nodeloom.graph_import.nodes import latents, logic, texts
from nodeloom.graph_import.nodes.lists import lower_node
from nodeloom.graph_import.nodes.lowering import KnownValues, Lowering, NeedsValue
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.nodes.schema import ports
from nodeloom.graph_import.nodes.values import Constant, EdgeList, ListValue, Value
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext
from nodeloom.runtime.ops.registry import body
from nodeloom.runtime.sampling.preview import Previews
from nodeloom.runtime.values import Latent
from safetensors import safe_open

from .case import Case, Outcome, close, equal, worst

TOLERANCE: Final = 1e-5
SOURCE: Final = "source"
EXISTING: Final = frozenset(
    {
        "EmptyLatentImage",
        "LatentBatch",
        "LatentComposite",
        "LatentFromBatch",
        "LatentUpscale",
        "LatentUpscaleBy",
        "PrimitiveBoolean",
        "PrimitiveFloat",
        "PrimitiveInt",
        "PrimitiveString",
        "PrimitiveStringMultiline",
        "RepeatLatentBatch",
        "SetLatentNoiseMask",
    }
)
CLASSES: Final = EXISTING | {
    cls.schema.class_type for cls in (*latents.NODES, *logic.NODES, *texts.NODES)
}


def cases(goldens: Path) -> Iterator[Case]:
    """Every case of the classes that ComfyUI ran without an error."""
    recorded = json.loads((goldens / "nodes.json").read_text("utf-8"))
    for case in recorded["cases"]:
        if case["node"] in CLASSES and "error" not in case:
            name = f"nodes/{case['node']}/{case['case']}"
            yield Case(name, partial(compared, goldens, recorded["inputs"], case))


def compared(goldens: Path, inputs: Mapping[str, Any], case: Mapping[str, Any]) -> Outcome:
    with safe_open(goldens / "nodes.safetensors", "pt") as tensors:
        given = {name: _input(tensors, inputs, value) for name, value in case["inputs"].items()}
        outputs = Evaluation().run(case["node"], given)
        outcomes = [
            outcome_of(tensors, ours, theirs)
            for slot, recorded in enumerate(case["outputs"])
            for ours, theirs in zip(outputs[slot], recorded, strict=True)
        ]
    return worst(outcomes) if outcomes else Outcome(0.0, 0.0)


class Evaluation:
    """One node, lowered on inputs that are there, and its ops run as executors run them."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.values: dict[tuple[NodeId, int], Any] = {}

    def run(self, class_type: str, given: Mapping[str, Any]) -> list[list[Any]]:
        """The list of values of each output."""
        cls = Registry()[class_type]
        inputs = {name: self._lowered(name, value) for name, value in given.items()}
        known: dict[tuple[NodeId, int], Any] = {}
        while True:
            node = self._lowering(class_type, inputs, known)
            try:
                outputs = lower_node(cls, node)
                break
            except NeedsValue as needs:
                self._evaluate()
                known |= {(e.source, e.port): self.values[e.source, e.port] for e in needs.edges}
                self.builder.take_back(node.nodes)
        self._evaluate()
        return [self._items(value) for value in outputs]

    def _lowering(
        self, class_type: str, inputs: Mapping[str, Value], known: Mapping[Any, Any]
    ) -> Lowering:
        return Lowering(
            node_id="1",
            schema=Registry()[class_type].schema,
            inputs=inputs,
            known=KnownValues(by_edge=known),
            catalog=cast(Catalog, None),
            builder=self.builder,
        )

    def _lowered(self, name: str, value: Any) -> Value:
        if isinstance(value, list):
            return ListValue(
                items=tuple(self._lowered(f"{name}-{i}", item) for i, item in enumerate(value))
            )
        if not isinstance(value, Latent | torch.Tensor):
            return Constant(value=value)
        node_id = NodeId(f"{SOURCE}-{name}")
        (edge,) = self.builder.add(
            node_id,
            SOURCE,
            params={},
            inputs={},
            outputs=ports(value="*"),
            origin=Origin(node_id=node_id, class_type=SOURCE),
        )
        self.values[node_id, 0] = value
        return edge

    def _items(self, value: Value | EdgeList) -> list[Any]:
        match value:
            case ListValue(items=items):
                return [one for item in items for one in self._items(item)]
            case EdgeList(edge=edge):
                return list(self.values[edge.source, edge.port])
            case Edge(source=source, port=port):
                return [self.values[source, port]]
            case Constant(value=constant):
                return [constant]
            case _:
                raise TypeError(f"an output is a {type(value).__name__}")

    def _evaluate(self) -> None:
        for node in self.builder.build().nodes:
            if node.op != SOURCE and (not node.outputs or (node.id, 0) not in self.values):
                self._run(node)

    def _run(self, node: Node) -> None:
        edges = {name: self.values[edge.source, edge.port] for name, edge in node.inputs}
        call = OpCall(
            request_id=RequestId("r"),
            node_id=node.id,
            args={**dict(node.params), **edges},
            hidden={},
        )
        context = OpContext(
            model=None,
            folders=Folders(*[Path("/nonexistent")] * 4),
            check_cancelled=lambda: None,
            is_strict=False,
            previews=Previews(64, (), "cpu"),
            is_metadata_disabled=False,
        )
        (result,) = body(node.op)(context, [call])
        for port, value in enumerate(result.outputs):
            self.values[node.id, port] = value


def _input(tensors: Any, inputs: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, list):
        return [_input(tensors, inputs, item) for item in value]
    if not (isinstance(value, str) and value.startswith("@")):
        return value
    recorded = inputs[value[1:]]
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


def outcome_of(tensors: Any, ours: Any, recorded: Mapping[str, Any]) -> Outcome:
    if isinstance(ours, Latent):
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
        outcomes += [
            outcome_of(tensors, part, theirs[n]) for n, part in given.items() if n in theirs
        ]
        return worst(outcomes)
    if isinstance(ours, torch.Tensor):
        if "constant" in recorded:
            return close(ours, torch.full(recorded["shape"], recorded["constant"]), TOLERANCE)
        if list(ours.shape) != recorded["shape"]:
            return equal(list(ours.shape), recorded["shape"])
        sampled = (
            ours.flatten()[:: recorded["sampled_every"]] if "sampled_every" in recorded else ours
        )
        return close(sampled, tensors.get_tensor(recorded["tensor"]), TOLERANCE)
    return equal({"value": ours}, dict(recorded))
