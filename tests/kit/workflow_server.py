"""What the example workflows need: a picture, a folder of workflow files, what lets them run."""

from __future__ import annotations

import io
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from kit.base_directory import make_base
from kit.cluster import ServerProcess
from nodeloom import workflows
from PIL import Image

EXAMPLES = Path(workflows.__file__).parent
HINT = "hint.png"


def make_workflow_base(folder: Path, checkpoint: Path) -> Path:
    """A base with a checkpoint and a picture; `flows` holds the examples."""
    base = make_base(folder, checkpoint)
    picture = Image.radial_gradient("L").convert("RGB").resize((64, 64))
    picture.save(base / "input" / HINT)
    flows = base / "flows"
    flows.mkdir()
    for example in EXAMPLES.glob("[!_]*.py"):
        shutil.copy(example, flows)
    return base


def flags(base: Path, *more: str) -> tuple[str, ...]:
    """What lets a server run the workflows and models of `base`."""
    return (
        *("--workflow-directory", str(base / "flows"), "--allow-user-models"),
        *("--demo-models", "on", *more),
    )


def register(server: ServerProcess, name: str, **body: object) -> dict[str, Any]:
    """Register a workflow that the server takes."""
    status, answer = server.ask("PUT", f"/nodeloom/workflows/{name}", body)
    assert status in (200, 201), answer
    registered: dict[str, Any] = answer
    return registered


def invoke(server: ServerProcess, name: str, **inputs: object) -> dict[str, Any]:
    """Run a workflow to its end, which must be a good one."""
    told = invoked(server, name, inputs=inputs, wait=True)
    assert told["status"] == "success", told
    return told


def invoked(server: ServerProcess, name: str, **body: object) -> dict[str, Any]:
    """The answer to an invocation that is accepted."""
    status, answer = server.post(f"/nodeloom/workflows/{name}/invoke", body)
    assert status == 200, answer
    told: dict[str, Any] = answer
    return told


def pixels(server: ServerProcess, told: dict[str, Any], output: str) -> np.ndarray:
    """The first picture of an output."""
    with urllib.request.urlopen(server.url + told["outputs"][output][0]["url"]) as answer:
        return np.asarray(Image.open(io.BytesIO(answer.read())))
