"""A real server for the commands that talk to one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.base_directory import make_base, make_checkpoint
from kit.cluster import ServerProcess

FLAGS = ("--threads", "1", "--demo-models", "on")


@pytest.fixture(scope="session")
def cli_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("cli-checkpoint"))


@pytest.fixture(scope="session")
def cli_server(
    cli_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    base = make_base(tmp_path_factory.mktemp("cli-base"), cli_checkpoint)
    with ServerProcess(base, executors=1, flags=FLAGS) as server:
        yield server
