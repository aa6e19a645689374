"""Deferred inputs that are still made elsewhere when their batch starts.

The I/O thread puts them here as they come; the main thread takes them where it first needs them.
Source: LegoDiffusion (arXiv 2604.08123), section 4.3.2.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ..errors import Cancelled
from ..protocol import AwaitedValue, ValueRef

MAX_WAIT_S: Final = 900.0  # longer than a model takes to load; then the batch is given up
LOOK_S: Final = 0.05  # how often a waiting batch looks whether it is cancelled


class Arrivals:
    """The awaited inputs of one batch. `waited_s` is how long the main thread waited for them."""

    def __init__(self) -> None:
        self._values: dict[AwaitedValue, ValueRef] = {}
        self._has_come = threading.Condition()
        self.waited_s = 0.0

    def put(self, awaited: AwaitedValue, value: ValueRef) -> None:
        """It is there (for the I/O thread)."""
        with self._has_come:
            self._values[awaited] = value
            self._has_come.notify_all()

    def take(self, awaited: AwaitedValue, check_cancelled: Callable[[], None]) -> ValueRef:
        """The value; waits until it is there.

        Raises: Cancelled: by `check_cancelled`, or because it did not come in MAX_WAIT_S.
        """
        start_s = time.monotonic()
        with self._has_come:
            try:
                while awaited not in self._values:
                    check_cancelled()
                    if time.monotonic() - start_s > MAX_WAIT_S:
                        raise Cancelled(f"the value of {awaited.node_id} did not come")
                    self._has_come.wait(LOOK_S)
                return self._values[awaited]
            finally:
                self.waited_s += time.monotonic() - start_s
