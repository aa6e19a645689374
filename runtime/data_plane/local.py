"""Tensors of this process: own ones as views, small ones inside their refs, fetched copies.

The executor's main thread puts and gets while its I/O thread looks tensors up and releases them.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from functools import cache

import torch

from ..errors import InputsLost
from ..ids import ExecutorId, TensorId
from ..protocol import INLINE_BYTES, TensorKey, TensorRef
from .checkpoints import OwnCheckpoints, file_name, fill
from .layout import allocate, as_buffer, dtype_name, flat_bytes, from_bytes, num_bytes, settle

log = logging.getLogger(__name__)


class LocalPlane:
    """A `DataPlane` that reaches no other process, but their checkpoints if it is given its own."""

    def __init__(
        self,
        executor: ExecutorId,
        incarnation: str,
        endpoint: str,
        device: str = "cpu",
        checkpoints: OwnCheckpoints | None = None,
    ) -> None:
        self.executor = executor
        self.incarnation = incarnation
        self.endpoint = endpoint
        self.device = device
        self._checkpoints = checkpoints
        self._tensors: dict[TensorKey, torch.Tensor] = {}
        self._held_bytes = 0
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    def put(self, tensor: torch.Tensor, *, is_checkpointed: bool = False) -> TensorRef:
        """Publish a tensor; it must not be written to afterwards.

        `is_checkpointed`: a file is to hold its bytes too. It is complete when this returns.
        Raises: TypeError: tensors of its dtype can't be carried.
        """
        dtype = dtype_name(tensor.dtype)
        tensor = settle(tensor)
        shape = tuple(tensor.shape)
        key = TensorKey(
            executor=self.executor,
            incarnation=self.incarnation,
            tensor_id=TensorId(next(self._ids)),
        )
        inline = checkpoint = None
        if num_bytes(shape, dtype) <= INLINE_BYTES:
            inline = bytes(as_buffer(flat_bytes(tensor)))
        else:
            if is_checkpointed and self._checkpoints is not None:
                checkpoint = self._checkpoints.save(key, as_buffer(flat_bytes(tensor)))
            self.keep(key, tensor)
        return TensorRef(
            key=key,
            endpoint=self.endpoint,
            shape=shape,
            dtype=dtype,
            inline=inline,
            checkpoint=checkpoint,
        )

    def get(self, ref: TensorRef) -> torch.Tensor:
        """The tensor itself, or one made of the ref's own bytes.

        Raises: InputsLost: it is not here.
        """
        if ref.inline is not None:
            try:
                return from_bytes(ref.inline, ref.shape, ref.dtype, self.device)
            except ValueError as problem:
                raise lost(ref, str(problem)) from problem
        tensor = self.find(ref.key)
        if tensor is None:
            raise lost(ref, "no such tensor here")
        return tensor

    def deferred(self, ref: TensorRef) -> Callable[[], torch.Tensor]:
        """Gets at the first call, and then the same tensor again."""
        return cache(lambda: self.get(ref))

    def release(self, keys: Iterable[TensorKey]) -> None:
        """Forget tensors and delete their files; readers that have one are not disturbed."""
        keys = tuple(keys)
        if self._checkpoints is not None:
            self._checkpoints.drop(keys)
        with self._lock:
            for key in keys:
                tensor = self._tensors.pop(key, None)
                if tensor is not None:
                    self._held_bytes -= tensor.nbytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the tensors and copies held now."""
        return self._held_bytes

    def is_own(self, key: TensorKey) -> bool:
        """Whether this incarnation made the tensor."""
        return key.executor == self.executor and key.incarnation == self.incarnation

    def find(self, key: TensorKey) -> torch.Tensor | None:
        """The tensor or copy held under `key`."""
        return self._tensors.get(key)

    def from_checkpoint(self, ref: TensorRef) -> torch.Tensor | None:
        """A copy of a tensor out of its file; None: there is none, or it is not to be used."""
        if ref.checkpoint is None or self._checkpoints is None:
            return None
        try:
            if ref.checkpoint != file_name(ref.key):
                raise ValueError(f"it is called {ref.checkpoint!r}")
            size_bytes = num_bytes(ref.shape, ref.dtype)
            with self._checkpoints.folder.opened(ref.checkpoint, size_bytes) as file:
                tensor = allocate(ref.shape, ref.dtype)  # only now: the size is confirmed
                fill(as_buffer(flat_bytes(tensor)), file)
        except (OSError, ValueError) as problem:
            tensor_id = ref.key.tensor_id
            log.warning("no_checkpoint", extra={"tensor": tensor_id, "reason": str(problem)})
            return None
        return tensor.to(self.device)

    def keep(self, key: TensorKey, tensor: torch.Tensor) -> None:
        """Hold a settled tensor, or the copy of another executor's one, until it is released."""
        with self._lock:
            if key not in self._tensors:
                self._tensors[key] = tensor
                self._held_bytes += tensor.nbytes


def lost(ref: TensorRef, reason: str) -> InputsLost:
    """The error for a tensor that can't be had."""
    key = ref.key
    return InputsLost(
        f"tensor {key.tensor_id} of {key.executor} ({key.incarnation}) is lost: {reason}",
        keys=(key,),
        reason=reason,
    )
