"""Faults of the ZeroMQ transport: dead, hanging and lying peers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import torch
import zmq
from kit.tensor_peer import TensorPeer, make_tensor
from nodeloom.runtime.data_plane.local import LocalPlane
from nodeloom.runtime.data_plane.routes import ExecutorPlane
from nodeloom.runtime.data_plane.zmq import PeerUnreachable, TensorFetcher, TensorServer
from nodeloom.runtime.errors import InputsLost
from nodeloom.runtime.ids import ExecutorId

BIG = [200, 100]
SOON_S = (
    5.0  # far below the fetch timeout of the `consumer` fixture, far above a busy machine's pauses
)

Context = zmq.Context[zmq.Socket[bytes]]


def test_a_peer_that_died_before_the_first_fetch_is_noticed_at_once(
    peer: TensorPeer, consumer: ExecutorPlane
) -> None:
    ref = peer.put("float32", BIG)
    peer.kill()
    start_s = time.monotonic()
    with pytest.raises(PeerUnreachable) as caught:
        consumer.get(ref)
    assert time.monotonic() - start_s < SOON_S
    assert caught.value.details["keys"] == (ref.key,)


def test_a_peer_that_died_after_a_fetch_is_noticed_at_once(
    peer: TensorPeer, consumer: ExecutorPlane
) -> None:
    first, second = peer.put("float32", BIG), peer.put("float32", BIG)
    consumer.get(first)
    peer.kill()
    start_s = time.monotonic()
    for _ in range(2):
        with pytest.raises(PeerUnreachable):
            consumer.get(second)
    assert time.monotonic() - start_s < SOON_S
    assert consumer.get(first).shape == torch.Size(BIG)  # the copy outlives its producer


def test_a_peer_that_dies_while_it_is_asked_is_noticed_at_once(
    peer: TensorPeer, consumer: ExecutorPlane
) -> None:
    first, second = peer.put("float32", BIG), peer.put("float32", BIG)
    consumer.get(first)
    peer.pause()
    with ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(consumer.get, second)
        peer.kill()
        with pytest.raises(PeerUnreachable):
            fetch.result(timeout=SOON_S)


def test_a_path_that_never_existed_is_noticed_at_once(
    shared_peer: TensorPeer, consumer: ExecutorPlane, tmp_path: Path
) -> None:
    ref = shared_peer.put("float32", BIG)
    start_s = time.monotonic()
    with pytest.raises(PeerUnreachable):
        consumer.get(msgspec.structs.replace(ref, endpoint=f"ipc://{tmp_path}/nobody"))
    assert time.monotonic() - start_s < SOON_S
    shared_peer.release(ref.key)


def test_a_peer_that_hangs_is_given_up_after_the_timeout(
    peer: TensorPeer, context: Context
) -> None:
    plane = ExecutorPlane(
        LocalPlane(ExecutorId("c"), "c", "ipc://none"), TensorFetcher(context, timeout_s=0.3)
    )
    ref = peer.put("float32", BIG, seed=4)
    peer.pause()
    with pytest.raises(PeerUnreachable, match=r"nothing for 0\.3 s"):
        plane.get(ref)
    with pytest.raises(PeerUnreachable, match="a moment ago"):
        plane.get(ref)
    peer.resume()
    deadline_s = time.monotonic() + SOON_S
    while plane.held_bytes == 0:  # asked again after a while; the late answer confuses nobody
        assert time.monotonic() < deadline_s
        with contextlib.suppress(PeerUnreachable):
            plane.get(ref)
    assert torch.equal(
        plane.get(ref).view(torch.uint8), make_tensor("float32", BIG, 4).view(torch.uint8)
    )
    plane.close()


def test_a_copy_that_is_released_while_it_travels_is_not_kept(
    peer: TensorPeer, consumer: ExecutorPlane
) -> None:
    ref = peer.put("float32", BIG, seed=9)
    peer.pause()
    is_asking = threading.Event()

    def get() -> torch.Tensor:
        is_asking.set()
        return consumer.get(ref)

    with ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(get)
        is_asking.wait(SOON_S)
        while not consumer._fetches:
            assert not fetch.done()
        consumer.release([ref.key])
        peer.resume()
        assert fetch.result(timeout=SOON_S).shape == torch.Size(BIG)
    assert consumer.held_bytes == 0


def test_a_ref_that_lies_about_its_size_is_refused(
    shared_peer: TensorPeer, consumer: ExecutorPlane
) -> None:
    ref = shared_peer.put("float32", BIG)
    for shape, dtype in (((2000, 100), "float32"), ((200, 50), "float32"), ((8,), "int128")):
        with pytest.raises(InputsLost):
            consumer.get(msgspec.structs.replace(ref, shape=shape, dtype=dtype))
    assert consumer.held_bytes == 0
    assert consumer.get(ref).shape == torch.Size(BIG)
    shared_peer.release(ref.key)


@pytest.fixture
def liar(context: Context, tmp_path: Path) -> Iterator[zmq.Socket[bytes]]:
    """A ROUTER that a test answers from by hand."""
    socket = context.socket(zmq.ROUTER)
    socket.bind(f"ipc://{tmp_path}/liar")
    yield socket
    socket.close(0)


@pytest.mark.parametrize(
    "answer",
    [
        [b"garbage", b"x" * 80_000],
        [b""],
        [msgspec.msgpack.encode({"type": "Chunk", "offset_bytes": 0, "total_bytes": 9}), b"x"],
        [
            msgspec.msgpack.encode({"type": "Chunk", "offset_bytes": 0, "total_bytes": 80_000}),
            b"x" * 90_000,
        ],
        [
            msgspec.msgpack.encode({"type": "Chunk", "offset_bytes": 0, "total_bytes": 80_000}),
            b"",
        ],
    ],
    ids=["garbage", "one-frame", "another-size", "too-many-bytes", "no-bytes"],
)
def test_a_lying_peer_is_an_error_and_never_a_tensor(
    liar: zmq.Socket[bytes],
    shared_peer: TensorPeer,
    consumer: ExecutorPlane,
    answer: list[bytes],
    tmp_path: Path,
) -> None:
    ref = shared_peer.put("float32", BIG)
    shared_peer.release(ref.key)
    with ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(
            consumer.get, msgspec.structs.replace(ref, endpoint=f"ipc://{tmp_path}/liar")
        )
        identity, _request = liar.recv_multipart()
        liar.send_multipart([identity, *answer])
        with pytest.raises(InputsLost):
            fetch.result(timeout=SOON_S)
    assert consumer.held_bytes == 0


def test_malformed_requests_are_ignored(context: Context, tmp_path: Path) -> None:
    plane = LocalPlane(ExecutorId("e"), "i", f"ipc://{tmp_path}/e")
    ref = plane.put(torch.zeros(BIG))
    server = TensorServer(context, plane.endpoint, plane.find)
    client = context.socket(zmq.DEALER)
    client.connect(plane.endpoint)
    good = {"key": msgspec.to_builtins(ref.key), "offset_bytes": 0, "num_bytes": 100}
    bad: list[list[bytes]] = [
        [b"garbage"],
        [b"a", b"b"],
        [msgspec.msgpack.encode(good | {"offset_bytes": -1})],
        [msgspec.msgpack.encode(good | {"offset_bytes": 80_000})],
        [msgspec.msgpack.encode(good | {"num_bytes": 2**40})],
        [msgspec.msgpack.encode(good | {"num_bytes": 0})],
        [msgspec.msgpack.encode(good | {"more": 1})],
    ]
    for frames in bad:
        client.send_multipart(frames)
    client.send(msgspec.msgpack.encode(good))
    for _ in range(len(bad) + 1):
        assert server.socket.poll(int(SOON_S * 1000))
        server.serve_one()
    assert len(client.recv_multipart()[1]) == 100
    assert not client.poll(0)
    client.close(0)
    server.close()


def test_connections_to_dead_peers_are_closed(
    tmp_path: Path, context: Context, shared_peer: TensorPeer
) -> None:
    fetcher = TensorFetcher(context)
    for number in range(3):
        peer = TensorPeer(tmp_path, incarnation=str(number))
        fetcher.fetch(peer.put("float32", BIG))
        peer.kill()
    ref = shared_peer.put("float32", BIG)
    deadline_s = time.monotonic() + SOON_S
    while not all(channel.is_dead() for channel in fetcher._channels.values()):
        assert time.monotonic() < deadline_s
    fetcher.fetch(ref)
    assert list(fetcher._channels) == [shared_peer.endpoint]
    shared_peer.release(ref.key)
    fetcher.close()
