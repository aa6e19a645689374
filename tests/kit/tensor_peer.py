"""A second process that puts tensors and serves them, driven by lines of JSON on its stdin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
import zmq
from nodeloom.runtime.data_plane.checkpoints import own_checkpoints
from nodeloom.runtime.data_plane.layout import DTYPES
from nodeloom.runtime.data_plane.local import LocalPlane
from nodeloom.runtime.data_plane.zmq import TensorServer
from nodeloom.runtime.ids import ExecutorId
from nodeloom.runtime.protocol import TensorKey, TensorRef

T = TypeVar("T")


def make_tensor(dtype: str, shape: list[int], seed: int) -> torch.Tensor:
    """The same bytes in any process, NaNs and all."""
    generator = torch.Generator().manual_seed(seed)
    item_bytes = DTYPES[dtype].itemsize
    high = 2 if dtype == "bool" else 256
    size = [*shape, item_bytes]
    raw = torch.randint(0, high, size, dtype=torch.uint8, generator=generator)
    return raw.view(DTYPES[dtype]).reshape(shape)


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What the peer is to do; `how` says how a tensor is put."""

    what: str
    dtype: str = "float32"
    shape: list[int] = []
    seed: int = 0
    how: str = "plain"
    keys: tuple[TensorKey, ...] = ()


def put(plane: LocalPlane, command: Command) -> TensorRef:
    """Put a tensor as the command says, into a file too; a transposed one is not contiguous."""
    tensor = make_tensor(command.dtype, command.shape, command.seed)
    if command.how == "transposed":
        tensor = tensor.transpose(0, -1)
    return plane.put(tensor, is_checkpointed=True)


class TensorPeer:
    """The other process, as a test holds it. It writes checkpoints if it is given a folder."""

    def __init__(
        self,
        folder: Path,
        executor: str = "producer",
        incarnation: str = "p1",
        checkpoints: Path | None = None,
    ) -> None:
        self.endpoint = f"ipc://{folder}/{executor}-{incarnation}"
        where = [] if checkpoints is None else [str(checkpoints)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, self.endpoint, executor, incarnation, *where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ) | {"OMP_NUM_THREADS": "1"},
        )
        self._ask(Command(what="held"), int)

    def put(self, dtype: str, shape: list[int], seed: int = 0, how: str = "plain") -> TensorRef:
        return self._ask(
            Command(what="put", dtype=dtype, shape=shape, seed=seed, how=how), TensorRef
        )

    def release(self, *keys: TensorKey) -> None:
        self._ask(Command(what="release", keys=keys), int)

    @property
    def held_bytes(self) -> int:
        return self._ask(Command(what="held"), int)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # until it stands still

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.communicate(timeout=30)

    def _ask(self, command: Command, answer: type[T]) -> T:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=answer)


def main() -> None:
    endpoint, executor, incarnation, *where = sys.argv[1:]
    own = own_checkpoints(Path(where[0])) if where else None
    plane = LocalPlane(ExecutorId(executor), incarnation, endpoint, checkpoints=own)
    server = TensorServer(zmq.Context(), endpoint, plane.find)

    def serve() -> None:
        while True:
            server.serve_one()

    threading.Thread(target=serve, daemon=True).start()
    for line in sys.stdin:
        command = msgspec.json.decode(line, type=Command)
        answer: Any
        if command.what == "put":
            answer = put(plane, command)
        else:
            plane.release(command.keys)
            answer = plane.held_bytes
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
