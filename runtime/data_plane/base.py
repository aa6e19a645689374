"""The data plane's face: a ref says where a tensor is, the plane picks how to get it.

All values are immutable. Every transport passes the same suite (`tests/runtime/data_plane`).
Source: architecture, section 8; data-plane page, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch

from ..protocol import TensorKey, TensorRef


class DataPlane(Protocol):
    """One executor's view of all tensors."""

    def put(self, tensor: torch.Tensor, *, is_checkpointed: bool = False) -> TensorRef:
        """Publish a tensor; it must not be written to afterwards.

        `is_checkpointed`: it is to outlive this process, as far as there is room for that.
        """
        ...

    def get(self, ref: TensorRef) -> torch.Tensor:
        """The tensor: a view where it is local, else a copy that is kept until released.

        Raises: InputsLost: its holder is gone, or has another incarnation, or has released it.
        """
        ...

    def deferred(self, ref: TensorRef) -> Callable[[], torch.Tensor]:
        """Fetches at the point of use; calling it twice fetches once."""
        ...

    def release(self, keys: Iterable[TensorKey]) -> None:
        """Forget tensors, own ones and fetched copies; unknown keys are no error."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of the tensors and copies held now."""
        ...
