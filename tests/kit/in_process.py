"""A whole prompt without a cluster: validated, lowered, and its nodes run one after another here.

As an executor would run them: the same bodies, the same model cache; no messages, no data plane.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from kit.op_calls import folders_below, never_cancelled
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.comfy.validate import validate
from nodeloom.graph_import.ir import Edge, EdgeKind, Graph, Node, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.runtime.config import read_settings
from nodeloom.runtime.executor.model_cache import ModelCache
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.ops.base import OpCall, OpContext
from nodeloom.runtime.ops.registry import body
from nodeloom.runtime.sampling.preview import Previews
from nodeloom.server.catalog import FolderCatalog
from nodeloom.server.files import Folders
from nodeloom.server.model_paths import ModelPaths

Outputs = dict[NodeId, tuple[Any, ...]]


class InProcess:
    """Runs prompts on the models below a base directory; loaded models stay from run to run."""

    def __init__(
        self, base: Path, *, model_memory_bytes: int = 2**32, demo_models: str = "off"
    ) -> None:
        flags = Namespace(base_directory=str(base), demo_models=demo_models)
        settings = read_settings(flags, {})
        self.catalog = FolderCatalog(ModelPaths.of(settings), Folders.of(settings))
        self.registry = Registry()
        self.models = ModelCache(model_memory_bytes, "cpu", build)
        self._folders = folders_below(base)

    def lower(self, prompt: Mapping[str, Any]) -> Graph:
        validated = validate(prompt, self.registry, self.catalog)
        return import_prompt(validated.prompt, validated.roots, self.registry, self.catalog)

    def run(self, prompt: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        """What the last DAG node of every ComfyUI node gave, by that node's id."""
        given: Outputs = {}
        by_origin: dict[str, tuple[Any, ...]] = {}
        for node in self.lower(prompt).nodes:
            given[node.id] = self._run(node, given)
            by_origin[node.origin.node_id] = given[node.id]
        return by_origin

    def _run(self, node: Node, given: Outputs) -> tuple[Any, ...]:
        args: dict[str, object] = dict(node.params)
        args.update((name, _argument(edge, given)) for name, edge in node.inputs)
        ref = node.model
        context = OpContext(
            model=None if ref is None else self.models.get(ref, never_cancelled),
            folders=self._folders,
            check_cancelled=never_cancelled,
            is_strict=True,
            previews=Previews(64, (), "cpu"),
            is_metadata_disabled=True,
        )
        call = OpCall(request_id=RequestId("r"), node_id=node.id, args=args, hidden={})
        with torch.inference_mode():
            (result,) = body(node.op)(context, [call])
        return result.outputs


def _argument(edge: Edge, given: Outputs) -> object:
    value = given[edge.source][edge.port]
    return (lambda: value) if edge.kind is EdgeKind.DEFERRED else value
