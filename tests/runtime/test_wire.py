from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
import zmq
from nodeloom.graph_import.handles import FileIdentity, ModelKey, ModelRef, Role
from nodeloom.graph_import.ir import NodeId
from nodeloom.runtime import wire
from nodeloom.runtime.ids import BatchId, ExecutorId, RequestId, TensorId
from nodeloom.runtime.protocol import (
    PROTOCOL_VERSION,
    BatchDone,
    CallCancelled,
    CallDone,
    CallFailed,
    CallLost,
    CancelBatch,
    DropModels,
    ErrorReport,
    FromExecutor,
    Heartbeat,
    Hello,
    ModelLoaded,
    NodeCall,
    NodeInput,
    ReleaseTensors,
    RunBatch,
    ScalarValue,
    Shutdown,
    TensorKey,
    TensorRef,
    ToExecutor,
    TreeValue,
)
from nodeloom.runtime.wire import (
    HEADER,
    WireProblem,
    bound,
    decode_from_executor,
    decode_to_executor,
    encode,
)

E0 = ExecutorId("e0")
KEY = TensorKey(executor=E0, incarnation="i", tensor_id=TensorId(2**40))
REF = TensorRef(key=KEY, endpoint="ipc://x", shape=(1, 0, 3), dtype="bfloat16", inline=b"\x00\xff")
MODEL = ModelKey(
    role=Role.VAE,
    family="sd15",
    file=FileIdentity(path="/m/ä.safetensors", size_bytes=2**33, mtime_ns=1),
    dtype="float16",
)
CALL = NodeCall(
    request_id=RequestId("r"),
    node_id=NodeId("3/eval-0"),
    params=(
        ("seed", 2**64 - 1),
        ("cfg", 8.0),
        ("sigmas", (14.6, 0.0)),
        ("text", "a ☃"),
        ("on", True),
        ("none", None),
    ),
    inputs=(
        NodeInput(name="a", value=TreeValue(tree=b"\x00", tensors=(REF,)), is_deferred=True),
        NodeInput(name="b", value=ScalarValue(value=1.0), is_deferred=False),
    ),
    num_outputs=2,
    hidden=(("prompt", "{}"),),
)
ERROR = ErrorReport(
    code="node_failed",
    exception_type="ValueError",
    message="no",
    traceback=("a\n",),
    current_inputs={"x": [1, 2.5, "t", None, False]},
)
TO_EXECUTOR: list[ToExecutor] = [
    RunBatch(batch_id=BatchId(1), op="denoise", model=ModelRef(key=MODEL), calls=(CALL, CALL)),
    RunBatch(batch_id=BatchId(2), op="image_size", model=None, calls=()),
    CancelBatch(batch_id=BatchId(1)),
    ReleaseTensors(keys=(KEY,)),
    DropModels(),
    Shutdown(),
]
FROM_EXECUTOR: list[FromExecutor] = [
    Hello(
        executor=E0,
        incarnation="i",
        protocol_version=PROTOCOL_VERSION,
        pid=7,
        device="cpu",
        num_threads=1,
    ),
    Heartbeat(executor=E0, incarnation="i", rss_bytes=2**40, held_bytes=0),
    BatchDone(
        executor=E0,
        incarnation="i",
        batch_id=BatchId(1),
        results=(
            CallDone(outputs=(ScalarValue(value=3),), ui="{}", preview=b"\xff\xd8"),
            CallFailed(error=ERROR),
            CallLost(missing=(KEY,)),
            CallCancelled(),
        ),
        resident=(MODEL,),
        loaded=(ModelLoaded(key=MODEL, seconds_s=0.5, num_bytes=9),),
        run_s=0.25,
    ),
]


@pytest.mark.parametrize("message", TO_EXECUTOR, ids=lambda m: type(m).__name__)
def test_what_the_coordinator_sends_comes_back_equal(message: ToExecutor) -> None:
    decoded = decode_to_executor(encode(message))
    assert decoded == message
    assert repr(decoded) == repr(message)  # an int stays an int, a float a float


@pytest.mark.parametrize("message", FROM_EXECUTOR, ids=lambda m: type(m).__name__)
def test_what_an_executor_sends_comes_back_equal(message: FromExecutor) -> None:
    decoded = decode_from_executor(encode(message))
    assert decoded == message
    assert repr(decoded) == repr(message)


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [HEADER],
        [HEADER, b"", b""],
        [HEADER, b""],
        [HEADER, b"\xc1"],
        [HEADER, encode(Shutdown())[1] + b"\x00"],
        [HEADER, msgspec.msgpack.encode({"type": "Reboot"})],
        [HEADER, msgspec.msgpack.encode({"type": "CancelBatch"})],
        [HEADER, msgspec.msgpack.encode({"type": "CancelBatch", "batch_id": "1"})],
        [HEADER, msgspec.msgpack.encode({"type": "CancelBatch", "batch_id": 1, "more": 1})],
        [HEADER, encode(FROM_EXECUTOR[1])[1]],
        [HEADER, b"\x91" * 100_000],
    ],
    ids=lambda frames: str(frames)[:40],
)
def test_a_malformed_message_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(WireProblem):
        decode_to_executor(frames)


def test_another_version_is_named_whatever_its_body_looks_like() -> None:
    with pytest.raises(WireProblem, match=r"nodeloom/99.*nodeloom/1"):
        decode_from_executor([b"nodeloom/99", b"\xc1"])


def test_a_message_that_is_too_large_is_neither_sent_nor_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = encode(FROM_EXECUTOR[2])
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", len(frames[1]) - 1)
    with pytest.raises(WireProblem, match="BatchDone"):
        encode(FROM_EXECUTOR[2])
    with pytest.raises(WireProblem, match="exceeds"):
        decode_from_executor(frames)


def test_a_bound_socket_drops_a_peer_that_sends_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 1000)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        bound(router)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RECONNECT_IVL, -1)
        monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        dealer.connect(f"tcp://127.0.0.1:{port}")
        dealer.send(b"x" * 1000)
        assert router.poll(10_000)
        assert len(router.recv_multipart()[1]) == 1000
        dealer.send(b"x" * 1001)
        assert monitor.poll(10_000)
        assert not router.poll(0)
        dealer.disable_monitor()
        monitor.close(0)
    context.term()


def test_the_coordinators_side_does_not_import_torch() -> None:
    program = (
        "import sys, nodeloom.runtime.wire, nodeloom.runtime.executor.main, nodeloom.runtime.logs;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
