"""Every message between coordinator and executors, and the refs that they carry.

Encoded by `wire.py`. The coordinator never sees a tensor: a `TensorRef` says where one is. Tensors
of up to `INLINE_BYTES` travel inside the ref. Source: architecture, sections 8 and 14.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..graph_import.handles import FileIdentity, ModelKey, ModelRef, Patch, Scalar
from ..graph_import.ir import NodeId, ParamValue
from .ids import BatchId, ExecutorId, RequestId, TensorId

PROTOCOL_VERSION: Final = 1
INLINE_BYTES: Final = 4096


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of everything on the wire; the tag is the class name."""


class TensorKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tensor: a reused id of a restarted executor never matches (incarnation)."""

    executor: ExecutorId
    incarnation: str
    tensor_id: TensorId


class TensorRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stands for an immutable tensor.

    `endpoint` is where its producer serves fetches; `inline` holds the bytes (C order, little
    endian) of a small tensor, which then lives nowhere else. `checkpoint` names a file that holds
    the same bytes and outlives the producer (`data_plane/checkpoints.py`).
    """

    key: TensorKey
    endpoint: str
    shape: tuple[int, ...]
    dtype: str
    inline: bytes | None = None
    checkpoint: str | None = None


class ScalarValue(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """An INT, FLOAT, STRING or BOOLEAN that a node gave."""

    value: Scalar


class TreeValue(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """A latent, a conditioning, a picture ...: `tree` (see `values.py`) with its tensors apart."""

    tree: bytes
    tensors: tuple[TensorRef, ...]


class AwaitedValue(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """What is still made when the call that needs it is sent.

    A deferred input comes from another executor while the call runs: `InputReady` will tell. Any
    other one comes from an earlier batch of the same chain.
    """

    request_id: RequestId
    node_id: NodeId
    port: int


ValueRef = ScalarValue | TreeValue


class NodeInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One input of a call, by name. See `AwaitedValue` for those that aren't there yet."""

    name: str
    value: ValueRef | AwaitedValue
    is_deferred: bool


class NodeCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node of one request. `hidden` holds JSON texts that the request supplies.

    The values of the ports in `checkpoints` are to outlive the executor.
    """

    request_id: RequestId
    node_id: NodeId
    params: tuple[tuple[str, ParamValue], ...]
    inputs: tuple[NodeInput, ...]
    num_outputs: int
    hidden: tuple[tuple[str, str], ...]
    checkpoints: tuple[int, ...] = ()


class RunBatch(Message, frozen=True, kw_only=True):
    """Coordinator -> executor: run these nodes of one op and one model together.

    Batches of one executor run in the order in which they were sent. One that comes `after`
    another continues its chain: it may await what earlier batches of the chain make, and it is
    reported as cancelled where one of them was not done.
    """

    batch_id: BatchId
    op: str
    model: ModelRef | None
    calls: tuple[NodeCall, ...]
    after: BatchId | None = None


class InputReady(Message, frozen=True, kw_only=True):
    """Coordinator -> executor: a value that calls of the batch await is there."""

    batch_id: BatchId
    awaited: AwaitedValue
    value: ValueRef


class CancelBatch(Message, frozen=True, kw_only=True):
    """Coordinator -> executor: nobody wants the batch any more; stop at the next boundary."""

    batch_id: BatchId


class RecallBatches(Message, frozen=True, kw_only=True):
    """Coordinator -> executor: report those of the batches that have not begun as cancelled.

    So a chain ends at the next boundary; the step that runs is not disturbed.
    """

    batch_ids: tuple[BatchId, ...]


class ReleaseTensors(Message, frozen=True, kw_only=True):
    """Coordinator -> executor: forget these tensors, own ones and fetched copies alike."""

    keys: tuple[TensorKey, ...]


class DropModels(Message, frozen=True, kw_only=True):
    """Coordinator -> executor: unload every model once idle (ComfyUI's /free)."""


class Shutdown(Message, frozen=True, kw_only=True):
    """To an executor: exit after the running batch is cancelled.

    Our own server ends its children with SIGTERM, which does the same.
    """


class Hello(Message, frozen=True, kw_only=True):
    """Executor -> coordinator: first message of an incarnation."""

    executor: ExecutorId
    incarnation: str
    protocol_version: int
    pid: int
    device: str
    num_threads: int


class Heartbeat(Message, frozen=True, kw_only=True):
    """Executor -> coordinator: alive; sent by the I/O thread whatever the device does."""

    executor: ExecutorId
    incarnation: str
    rss_bytes: int
    held_bytes: int


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exception of a node, as clients are told of it. Input tensors are given as text."""

    code: str
    exception_type: str
    message: str
    traceback: tuple[str, ...]
    current_inputs: dict[str, list[Scalar]]


class CallDone(Message, frozen=True, kw_only=True):
    """A call succeeded. `ui` is the JSON text of ComfyUI's ui dict; `preview` a JPEG file."""

    outputs: tuple[ValueRef, ...]
    ui: str | None
    preview: bytes | None


class CallFailed(Message, frozen=True, kw_only=True):
    """A call raised."""

    error: ErrorReport


class CallLost(Message, frozen=True, kw_only=True):
    """A call's inputs could not be fetched: their holder is gone or has dropped them."""

    missing: tuple[TensorKey, ...]


class CallCancelled(Message, frozen=True, kw_only=True):
    """A call was stopped because its batch was cancelled."""


CallResult = CallDone | CallFailed | CallLost | CallCancelled


class ModelLoaded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model was read from its file."""

    key: ModelKey
    seconds_s: float
    num_bytes: int


class PatchesSwitched(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A loaded model has these patches now; `seconds_s` is what taking off and putting on took."""

    key: ModelKey
    patches: tuple[Patch, ...]
    seconds_s: float


class PatchCoverage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a patch file changes in a model, counted in keys of the file.

    Keys that say that they are for another model of the workflow are not counted. `ignored` and
    `misshapen` name the first few of the keys that have no module here, or another shape than it.
    """

    key: ModelKey
    file: FileIdentity
    num_applied: int
    num_ignored: int
    num_misshapen: int
    ignored: tuple[str, ...]
    misshapen: tuple[str, ...]


class BatchDone(Message, frozen=True, kw_only=True):
    """Executor -> coordinator: one result per call, in order, and what became of the models.

    `resident` is the whole table of loaded models (piggybacked, as in LegoDiffusion section 4.3).
    `waited_s` is the part of `run_s` in which the batch waited for deferred inputs. `coverage` is
    that of the patches which the batch's model had. `worked_s` is what the calls themselves took of
    the device, apart from all else that goes on there; None where that can't be told.
    """

    executor: ExecutorId
    incarnation: str
    batch_id: BatchId
    results: tuple[CallResult, ...]
    resident: tuple[ModelKey, ...]
    loaded: tuple[ModelLoaded, ...]
    run_s: float
    waited_s: float = 0.0
    worked_s: float | None = None
    switched: tuple[PatchesSwitched, ...] = ()
    coverage: tuple[PatchCoverage, ...] = ()


ToExecutor = (
    RunBatch | InputReady | CancelBatch | RecallBatches | ReleaseTensors | DropModels | Shutdown
)
FromExecutor = Hello | Heartbeat | BatchDone
