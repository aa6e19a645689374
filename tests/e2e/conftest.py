"""Real servers for the end-to-end tests; one that most tests share, others on demand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.base_directory import make_base, make_checkpoint
from kit.cluster import ServerProcess


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def shared_server(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Two executors, default mode, previews on; tests must not disturb it for good."""
    base = make_base(tmp_path_factory.mktemp("shared"), checkpoint)
    flags = ("--preview-method", "latent2rgb")
    with ServerProcess(base, executors=2, flags=flags) as server:
        yield server
