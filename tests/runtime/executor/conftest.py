from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from kit.checkpoints import SD15_ROLES
from kit.executors import ExecutorProcess
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.runtime.models.tiny import write_tiny_sd15
from nodeloom.runtime.models.weight_files import identify

Context = zmq.Context[zmq.Socket[bytes]]


@pytest.fixture(scope="session")
def context() -> Iterator[Context]:
    made: Context = zmq.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture(scope="session")
def pair(
    tmp_path_factory: pytest.TempPathFactory, context: Context
) -> Iterator[tuple[ExecutorProcess, ExecutorProcess]]:
    """Two executors that no test harms."""
    folder = tmp_path_factory.mktemp("pair")
    first, second = (ExecutorProcess(folder, context, name) for name in ("e0", "e1"))
    yield first, second
    assert (first.close(), second.close()) == (0, 0)


@pytest.fixture
def start(tmp_path: Path, context: Context) -> Iterator[Callable[..., ExecutorProcess]]:
    """Starts executors of the test's own; they are gone at its end."""
    started: list[ExecutorProcess] = []

    def start(name: str = "e0", **settings: object) -> ExecutorProcess:
        started.append(ExecutorProcess(tmp_path, context, name, **settings))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for executor in started:
        executor.kill()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny SD1.5 file."""
    path = tmp_path_factory.mktemp("models") / "tiny.safetensors"
    write_tiny_sd15(path)
    return path


def model_ref(path: Path, role: Role) -> ModelRef:
    """One of the three models of a checkpoint."""
    return ModelRef(key=ModelKey(role=role, family="sd15", file=identify(path), dtype="float16"))


@pytest.fixture(scope="session")
def refs(checkpoint: Path) -> dict[Role, ModelRef]:
    """The three models of the tiny file."""
    return {role: model_ref(checkpoint, role) for role in SD15_ROLES}
