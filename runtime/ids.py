"""Names for the ids that cross rooms."""

from __future__ import annotations

from typing import NewType

RequestId = NewType("RequestId", str)  # ComfyUI's prompt_id
ClientId = NewType("ClientId", str)
BatchId = NewType("BatchId", int)
ExecutorId = NewType("ExecutorId", str)
TensorId = NewType("TensorId", int)  # unique within one incarnation of an executor
