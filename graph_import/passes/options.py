"""What a request may opt in to, for the passes that change what is computed. By default: nothing.

The server makes these from the request's `extra_data` and its own settings.
"""

from __future__ import annotations

import msgspec


class CacheLevel(msgspec.Struct, frozen=True, kw_only=True):
    """A text at least this similar to a known one may skip this share of the steps."""

    similarity: float
    skip: float


class ApproximateCache(msgspec.Struct, frozen=True, kw_only=True):
    """Start from latents of a similar text (`approx_cache.py`).

    Args:
        levels: what may be skipped; of those that apply, the one that skips most.
        folder: where the latents are kept, and `max_bytes` of them at most.
    """

    levels: tuple[CacheLevel, ...]
    folder: str
    max_bytes: int


class AsyncLora(msgspec.Struct, frozen=True, kw_only=True):
    """Take the first steps without the LoRAs, while their files are fetched (`async_lora.py`).

    Args:
        steps: how many; None: as many as fetching takes by `fetch_bytes_per_s` and `step_s`.
    """

    steps: int | None = None
    fetch_bytes_per_s: float = 1e8
    step_s: float = 0.25


class PassOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request opted in to."""

    approximate_cache: ApproximateCache | None = None
    async_lora: AsyncLora | None = None
