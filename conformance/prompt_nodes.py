"""What the text encode nodes of prompts.json have encoded, and what they put beside it.

A node is lowered and its op run, on a model that takes down what each encoder would get.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from nodeloom.graph_import import types
from nodeloom.graph_import.builder import GraphBuilder
from nodeloom.graph_import.catalog import Catalog
from nodeloom.graph_import.handles import FileIdentity, ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.graph_import.nodes.lowering import KnownValues, Lowering
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.nodes.values import Constant, Handle
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.text.family_encoder import FamilyTextEncoder
from nodeloom.runtime.models.text.family_tokenizers import tokenizers
from nodeloom.runtime.models.text.pieces import Chunk
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext
from nodeloom.runtime.ops.registry import body
from nodeloom.runtime.sampling.preview import Previews
from nodeloom.runtime.values import CondEntry, Conditioning


class Listener(Model):
    """Stands where a text encoder would: keeps the chunks of its only call, and encodes nothing."""

    chunks: Mapping[str, Sequence[Chunk]]

    def setup_io(self) -> None:
        self.add_input("text", types.STRING)
        self.add_output("conditioning", types.CONDITIONING)

    def load(self, device: str) -> None:
        """Nothing is loaded."""

    def execute(self, **inputs: object) -> Mapping[str, object]:
        given = tokenizers(self.ref.key.family)
        if "texts" in inputs:
            encoder = cast(FamilyTextEncoder, build(self.ref))
            self.chunks = encoder.chunks(inputs, given, {})
        else:
            text = cast(str, inputs["text"])
            self.chunks = {name: tokenizer.chunks(text) for name, tokenizer in given.items()}
        nothing = CondEntry(cond=torch.zeros(1, 1, 1), pooled=None)
        return {"conditioning": Conditioning(entries=(nothing,))}

    def execute_batch(self, calls: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        return [self.execute(**call) for call in calls]


def run_node(
    class_type: str, family: str, inputs: Mapping[str, Any]
) -> tuple[Mapping[str, Sequence[Chunk]], dict[str, float]]:
    """The chunks of each encoder, and the numbers beside them by ComfyUI's names.

    Raises: LookupError: there is no such node class.
    """
    registry = Registry()
    if class_type not in registry:
        raise LookupError(f"there is no node class {class_type}")
    file = FileIdentity(path="/nonexistent", size_bytes=0, mtime_ns=0)
    key = ModelKey(role=Role.TEXT_ENCODER, family=family, file=file, dtype="float16")
    ref = ModelRef(key=key)
    cls = registry[class_type]
    builder = GraphBuilder()
    values = {name: Constant(value=value) for name, value in inputs.items()}
    node = Lowering(
        node_id="1",
        schema=cls.schema,
        inputs={**values, "clip": Handle(ref=ref)},
        known=KnownValues(by_edge={}),
        catalog=cast(Catalog, None),
        builder=builder,
    )
    cls.lower(node)
    (lowered,) = builder.build().nodes
    listener = Listener(ref)
    context = OpContext(
        model=listener,
        folders=Folders(*[Path("/nonexistent")] * 4),
        check_cancelled=lambda: None,
        is_strict=False,
        previews=Previews(64, (), "cpu"),
        is_metadata_disabled=False,
    )
    call = OpCall(
        request_id=RequestId("r"), node_id=lowered.id, args=dict(lowered.params), hidden={}
    )
    (result,) = body(lowered.op)(context, [call])
    (entry,) = cast(Conditioning, result.outputs[0]).entries
    beside = dict(entry.more.numbers) if entry.more else {}
    if entry.more and entry.more.guidance is not None:
        beside["guidance"] = entry.more.guidance
    return listener.chunks, beside
