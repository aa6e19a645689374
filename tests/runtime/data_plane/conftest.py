"""The pairs of planes that every transport's suite runs on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
import torch
import zmq
from kit.tensor_peer import Command, TensorPeer, put
from nodeloom.runtime.data_plane.base import DataPlane
from nodeloom.runtime.data_plane.checkpoints import own_checkpoints
from nodeloom.runtime.data_plane.local import LocalPlane, lost
from nodeloom.runtime.data_plane.routes import ExecutorPlane
from nodeloom.runtime.data_plane.zmq import TensorFetcher
from nodeloom.runtime.ids import ExecutorId
from nodeloom.runtime.protocol import TensorKey, TensorRef


class Producer(Protocol):
    """The end of a transport that puts."""

    def put(self, dtype: str, shape: list[int], seed: int = 0, how: str = "plain") -> TensorRef: ...

    def release(self, *keys: TensorKey) -> None: ...

    @property
    def held_bytes(self) -> int: ...


class LocalProducer:
    """Puts into the consumer's own plane."""

    def __init__(self, plane: LocalPlane) -> None:
        self._plane = plane

    def put(self, dtype: str, shape: list[int], seed: int = 0, how: str = "plain") -> TensorRef:
        return put(self._plane, Command(what="put", dtype=dtype, shape=shape, seed=seed, how=how))

    def release(self, *keys: TensorKey) -> None:
        self._plane.release(keys)

    @property
    def held_bytes(self) -> int:
        return self._plane.held_bytes


@pytest.fixture(scope="module")
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture(scope="module")
def shared_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorPeer]:
    """A producer process that no test harms."""
    peer = TensorPeer(tmp_path_factory.mktemp("peer"))
    yield peer
    peer.kill()


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[TensorPeer]:
    """A producer process of the test's own."""
    peer = TensorPeer(tmp_path)
    yield peer
    peer.kill()


@pytest.fixture
def consumer(context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[ExecutorPlane]:
    """A plane that fetches over ZeroMQ."""
    plane = ExecutorPlane(
        LocalPlane(ExecutorId("consumer"), "c1", "ipc://none"),
        TensorFetcher(context, timeout_s=10.0),
    )
    yield plane
    plane.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where checkpoints lie."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def lasting_peer(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[TensorPeer]:
    """A producer process that writes checkpoints and that no test harms."""
    peer = TensorPeer(tmp_path_factory.mktemp("lasting"), checkpoints=folder)
    yield peer
    peer.kill()


class NoFetcher(TensorFetcher):
    """Fetches nothing: no tensor is there but for its file."""

    def fetch(self, ref: TensorRef) -> torch.Tensor:
        raise lost(ref, "nothing can be fetched")


@pytest.fixture
def reader(context: zmq.Context[zmq.Socket[bytes]], folder: Path) -> ExecutorPlane:
    """A plane that reads files and can't fetch."""
    local = LocalPlane(ExecutorId("reader"), "r1", "ipc://none", "cpu", own_checkpoints(folder))
    return ExecutorPlane(local, NoFetcher(context))


@pytest.fixture(params=["local", "zmq", "file"])
def pair(request: pytest.FixtureRequest) -> tuple[Producer, DataPlane]:
    """Where tensors are put, and the plane that gets them; a new transport adds its name."""
    if request.param == "local":
        plane = LocalPlane(ExecutorId("alone"), "a1", "ipc://none")
        return LocalProducer(plane), plane
    if request.param == "file":
        return request.getfixturevalue("lasting_peer"), request.getfixturevalue("reader")
    return request.getfixturevalue("shared_peer"), request.getfixturevalue("consumer")
