"""Real executor processes, and the coordinator's end of the link as a test holds it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq
from nodeloom.graph_import.handles import ModelRef
from nodeloom.graph_import.ir import NodeId, ParamValue
from nodeloom.runtime.config import ExecutorSettings
from nodeloom.runtime.executor.main import executor_command
from nodeloom.runtime.ids import BatchId, ExecutorId, RequestId
from nodeloom.runtime.protocol import (
    AwaitedValue,
    BatchDone,
    CallDone,
    Heartbeat,
    Hello,
    NodeCall,
    NodeInput,
    RunBatch,
    ToExecutor,
    TreeValue,
    ValueRef,
)
from nodeloom.runtime.wire import decode_from_executor, encode

LIMIT_S = 60.0

_batch_ids = itertools.count(1)
T = TypeVar("T")


def node_call(
    node_id: str,
    *,
    num_outputs: int = 1,
    inputs: Mapping[str, ValueRef | AwaitedValue] | None = None,
    deferred: tuple[str, ...] = (),
    hidden: dict[str, str] | None = None,
    **params: ParamValue,
) -> NodeCall:
    """A call of request `r`."""
    return NodeCall(
        request_id=RequestId("r"),
        node_id=NodeId(node_id),
        params=tuple(params.items()),
        inputs=tuple(
            NodeInput(name=name, value=value, is_deferred=name in deferred)
            for name, value in (inputs or {}).items()
        ),
        num_outputs=num_outputs,
        hidden=tuple((hidden or {}).items()),
    )


def run_batch(op: str, *calls: NodeCall, model: ModelRef | None = None) -> RunBatch:
    """A batch with an id of its own."""
    return RunBatch(batch_id=BatchId(next(_batch_ids)), op=op, model=model, calls=calls)


def outputs(done: BatchDone, call: int = 0) -> tuple[ValueRef, ...]:
    """What a call gave; fails the test with the report if it failed."""
    result = done.results[call]
    assert isinstance(result, CallDone), result
    return result.outputs


def tree(value: ValueRef | AwaitedValue) -> TreeValue:
    """A value that is there and no scalar."""
    assert isinstance(value, TreeValue), value
    return value


class ExecutorProcess:
    """An executor, and its end of the link."""

    def __init__(
        self,
        folder: Path,
        context: zmq.Context[zmq.Socket[bytes]],
        executor: str = "e0",
        *,
        is_strict: bool = False,
        model_memory_bytes: int = 2**30,
    ) -> None:
        for name in ("input", "output", "temp", "saves", f"link-{executor}"):
            (folder / name).mkdir(exist_ok=True)
        link = folder / f"link-{executor}"
        self.settings = ExecutorSettings(
            executor=ExecutorId(executor),
            incarnation=f"{executor}-1",
            coordinator_endpoint=f"ipc://{link}/coordinator",
            data_endpoint=f"ipc://{link}/data",
            device="cpu",
            num_threads=1,
            is_strict=is_strict,
            model_memory_bytes=model_memory_bytes,
            input_directory=folder / "input",
            output_directory=folder / "output",
            temp_directory=folder / "temp",
            saves_directory=folder / "saves",
            is_metadata_disabled=False,
            preview_size=512,
            preview_folders=(),
            log_level="INFO",
        )
        self.log_path = folder / f"{executor}.log"
        self.beats: list[tuple[float, Heartbeat]] = []
        self._socket = context.socket(zmq.ROUTER)
        self._socket.bind(self.settings.coordinator_endpoint)
        self._identity = b""
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                executor_command(self.settings), stdin=subprocess.PIPE, stderr=log
            )
        try:
            self.hello = self.receive(Hello)
        except BaseException:
            self.kill()
            raise

    def send(self, message: ToExecutor) -> None:
        self.send_frames(encode(message))

    def send_frames(self, frames: list[bytes]) -> None:
        self._socket.send_multipart([self._identity, *frames])

    def receive(self, kind: type[T], limit_s: float = LIMIT_S) -> T:
        """The next message of this kind; heartbeats on the way are noted in `beats`."""
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s and self.process.poll() is None:
            if not self._socket.poll(500):
                continue
            self._identity, *frames = self._socket.recv_multipart()
            message = decode_from_executor(frames)
            if isinstance(message, Heartbeat):
                self.beats.append((time.monotonic(), message))
            if isinstance(message, kind):
                return message
        raise AssertionError(f"no {kind.__name__} came; the log:\n{self.log_text()}")

    def run(self, batch: RunBatch) -> BatchDone:
        """Send the batch and wait for its report."""
        self.send(batch)
        done = self.receive(BatchDone)
        assert done.batch_id == batch.batch_id
        return done

    def held_bytes(self) -> int:
        """As a heartbeat says it that was made after everything sent before this call."""
        while self._socket.poll(0):
            self._socket.recv_multipart()
        self.receive(Heartbeat)  # this one may have crossed our last message
        return self.receive(Heartbeat).held_bytes

    def log_lines(self) -> list[dict[str, object]]:
        """The log, decoded."""
        return [msgspec.json.decode(line) for line in self.log_text().splitlines()]

    def log_text(self) -> str:
        return self.log_path.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> int:
        """Close stdin and the socket, wait for the end; returns the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(timeout=LIMIT_S)
        self._socket.close(0)
        return code


def run_as_parent(folder: Path) -> None:
    """Start an executor, print its pid, and wait to be killed (a process of its own)."""
    executor = ExecutorProcess(folder, zmq.Context())
    sys.stdout.write(f"{executor.process.pid}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    run_as_parent(Path(sys.argv[1]))
