"""Settings below a temporary folder, and the real application behind a loopback port."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from nodeloom.runtime.config import Settings, read_settings
from nodeloom.server.app import Front, build_front
from nodeloom.server.files import prepare_folders

Client = TestClient[web.Request, web.Application]


@pytest.fixture
def server_settings(tmp_path: Path) -> Settings:
    flags = argparse.Namespace(base_directory=str(tmp_path / "base"))
    return read_settings(flags, {})


@pytest.fixture
async def front(server_settings: Settings) -> AsyncIterator[Front]:
    """A server without executors: requests are accepted and wait."""
    prepare_folders(server_settings)
    front = build_front(server_settings)
    await front.coordinator.start()
    yield front
    await front.coordinator.stop()


@pytest.fixture
async def client(front: Front) -> AsyncIterator[Client]:
    async with TestClient(TestServer(front.app)) as client:
        yield client
