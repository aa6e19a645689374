"""Settings below a temporary folder, and the real application behind a loopback port."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from nodeloom.runtime.config import Settings, read_settings
from nodeloom.server.app import Front, build_front
from nodeloom.server.files import empty_temp, make_folders

Client = TestClient[web.Request, web.Application]


@pytest.fixture
def server_settings(tmp_path: Path) -> Settings:
    flags = argparse.Namespace(base_directory=str(tmp_path / "base"), demo_models="off")
    return read_settings(flags, {})


@contextlib.asynccontextmanager
async def started(settings: Settings) -> AsyncIterator[Front]:
    """A server without executors: requests are accepted and wait."""
    make_folders(settings)
    empty_temp(settings)
    front = build_front(settings)
    await front.coordinator.start()
    try:
        yield front
    finally:
        await front.coordinator.stop()


@pytest.fixture
async def front(server_settings: Settings) -> AsyncIterator[Front]:
    async with started(server_settings) as front:
        yield front


Serve = Callable[..., contextlib.AbstractAsyncContextManager[Client]]


@pytest.fixture
def serve(server_settings: Settings) -> Serve:
    """`async with serve(max_queue=2) as client`: the application with other settings."""

    @contextlib.asynccontextmanager
    async def serve_with(**changes: object) -> AsyncIterator[Client]:
        fields = {n: getattr(server_settings, n) for n in server_settings.__struct_fields__}
        async with (
            started(Settings(**fields | changes)) as front,
            TestClient(TestServer(front.app)) as client,
        ):
            yield client

    return serve_with


@pytest.fixture
async def client(front: Front) -> AsyncIterator[Client]:
    async with TestClient(TestServer(front.app)) as client:
        yield client
