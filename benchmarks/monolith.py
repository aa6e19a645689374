"""The reference of the benchmarks: one process that runs a workflow as a plain loop.

It uses the same node bodies and the same models as an executor, loaded once and patched in place
when a prompt wants other LoRAs, but has no scheduler, no messages and no second process: values go
from body to body as Python objects. It reads one prompt (API format, JSON) per line of standard
input and answers with the seconds that it took, and how often models were read or patched anew.

    python benchmarks/monolith.py --base-directory DIR [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--base-directory", required=True, type=Path)
parser.add_argument("--threads", type=int, default=1)
flags = parser.parse_args()
os.environ |= {"OMP_NUM_THREADS": str(flags.threads), "HF_HUB_OFFLINE": "1"}

import torch  # noqa: E402  (the number of threads is read at import)
from nodeloom.graph_import.ir import EdgeKind, Graph  # noqa: E402
from nodeloom.graph_import.nodes.registry import Registry  # noqa: E402
from nodeloom.runtime.config import read_settings  # noqa: E402
from nodeloom.runtime.executor.model_cache import ModelCache  # noqa: E402
from nodeloom.runtime.ids import RequestId  # noqa: E402
from nodeloom.runtime.models.registry import build  # noqa: E402
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext  # noqa: E402
from nodeloom.runtime.ops.registry import body  # noqa: E402
from nodeloom.runtime.sampling.preview import Previews  # noqa: E402
from nodeloom.server.catalog import FolderCatalog  # noqa: E402
from nodeloom.server.files import Folders as ServerFolders  # noqa: E402
from nodeloom.server.model_paths import ModelPaths  # noqa: E402
from nodeloom.server.prompt_importer import PromptImporter  # noqa: E402

torch.set_num_threads(flags.threads)
torch.set_num_interop_threads(1)

MODEL_MEMORY_BYTES = 1 << 40  # everything stays loaded


class Monolith:
    """A loop over the nodes of one graph at a time."""

    def __init__(self, base: Path) -> None:
        settings = read_settings(argparse.Namespace(base_directory=str(base)), {})
        catalog = FolderCatalog(ModelPaths.of(settings), ServerFolders.of(settings))
        self._importer = PromptImporter(Registry(), catalog)
        self._folders = Folders(
            input=base / "input",
            output=base / "monolith",
            temp=base / "temp",
            saves=base / "monolith-saves",
        )
        self._models = ModelCache(MODEL_MEMORY_BYTES, "cpu", build)
        self._num_runs = 0

    def lower(self, prompt: dict[str, object]) -> Graph:
        """Not timed: the reference is as lean as can be."""
        return self._importer.lower_validated(self._importer.validate(prompt, None))

    def run(self, graph: Graph, prompt: dict[str, object]) -> None:
        """Run all nodes in order."""
        self._num_runs += 1
        request_id = RequestId(f"monolith-{os.getpid()}-{self._num_runs}")
        values: dict[str, tuple[object, ...]] = {}
        for node in graph.nodes:
            context = OpContext(
                model=None if node.model is None else self._models.get(node.model, _go_on),
                folders=self._folders,
                check_cancelled=_go_on,
                is_strict=False,
                previews=Previews(512, (), "cpu"),
                is_metadata_disabled=False,
            )
            arguments: dict[str, object] = dict(node.params)
            for name, edge in node.inputs:
                value = values[edge.source][edge.port]
                arguments[name] = _later(value) if edge.kind is EdgeKind.DEFERRED else value
            call = OpCall(
                request_id=request_id,
                node_id=node.id,
                args=arguments,
                hidden={"prompt": json.dumps(prompt)},
            )
            with torch.inference_mode():
                values[node.id] = body(node.op)(context, [call])[0].outputs

    def changes(self) -> dict[str, float]:
        """What happened to the models since the last call."""
        switched = self._models.take_switched()
        return {
            "num_loads": len(self._models.take_loaded()),
            "num_switches": len(switched),
            "switch_s": sum(switch.seconds_s for switch in switched),
        }


def _go_on() -> None:
    """Nobody cancels."""


def _later(value: object) -> Callable[[], object]:
    """A deferred input, which is there already."""
    return lambda: value


def main() -> None:
    monolith = Monolith(flags.base_directory)
    for line in sys.stdin:
        prompt = json.loads(line)
        graph = monolith.lower(prompt)
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        monolith.run(graph, prompt)
        seconds = {
            "wall_s": time.perf_counter() - wall_s,
            "cpu_s": time.process_time() - cpu_s,
        }
        print(json.dumps(seconds | monolith.changes()), flush=True)


if __name__ == "__main__":
    main()
