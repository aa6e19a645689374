"""Which transport reaches a ref: inside it, in this process, a file, else ZeroMQ from its producer.

A file is read before its producer is asked: that is cheaper, and the producer may be gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import cache

import torch

from ..protocol import TensorKey, TensorRef
from .local import LocalPlane
from .zmq import TensorFetcher


class ExecutorPlane:
    """An executor's `DataPlane`: what is here, and what other executors hold."""

    def __init__(self, local: LocalPlane, fetcher: TensorFetcher) -> None:
        self.local = local
        self._fetcher = fetcher
        self._fetches: dict[TensorKey, Future[torch.Tensor]] = {}
        self._lock = threading.Lock()

    def put(self, tensor: torch.Tensor, *, is_checkpointed: bool = False) -> TensorRef:
        """Publish a tensor; it must not be written to afterwards."""
        return self.local.put(tensor, is_checkpointed=is_checkpointed)

    def get(self, ref: TensorRef) -> torch.Tensor:
        """A view of a local tensor, else a copy, made once and kept until it is released.

        Raises: InputsLost: it can't be had; PeerUnreachable: nor anything else of its holder.
        """
        if ref.inline is not None or self.local.is_own(ref.key):
            return self.local.get(ref)
        with self._lock:
            held = self.local.find(ref.key)
            if held is not None:
                return held
            fetch = self._fetches.get(ref.key)
            is_ours = fetch is None
            if fetch is None:
                fetch = self._fetches[ref.key] = Future()
        if is_ours:
            self._fetch(ref, fetch)
        return fetch.result()

    def deferred(self, ref: TensorRef) -> Callable[[], torch.Tensor]:
        """Fetches at the point of use; calling it twice fetches once."""
        return cache(lambda: self.get(ref))

    def release(self, keys: Iterable[TensorKey]) -> None:
        """Forget tensors, own ones and copies; a fetch under way is delivered but not kept."""
        keys = tuple(keys)
        with self._lock:
            for key in keys:
                self._fetches.pop(key, None)
            self.local.release(keys)

    @property
    def held_bytes(self) -> int:
        """Bytes of the tensors and copies held now."""
        return self.local.held_bytes

    def close(self) -> None:
        """Close the connections to other executors."""
        self._fetcher.close()

    def _fetch(self, ref: TensorRef, fetch: Future[torch.Tensor]) -> None:
        """Settle `fetch`; whoever waits for it gets the tensor or the error."""
        try:
            tensor = self.local.from_checkpoint(ref)
            if tensor is None:
                tensor = self._fetcher.fetch(ref)
        except BaseException as problem:  # noqa: BLE001  (goes on to all who wait for it)
            with self._lock:
                self._forget(ref.key, fetch)
            fetch.set_exception(problem)
            return
        with self._lock:
            if self._forget(ref.key, fetch):
                self.local.keep(ref.key, tensor)
        fetch.set_result(tensor)

    def _forget(self, key: TensorKey, fetch: Future[torch.Tensor]) -> bool:
        """Take the fetch off the table; False if a release took it off before (under the lock)."""
        if self._fetches.get(key) is not fetch:
            return False
        del self._fetches[key]
        return True
