"""What a request's `extra_data` says under `passes`: the passes that it opts in to.

    {"approximate_cache": true, "async_lora": {"steps": 2}}

Both change the picture by design, so without a word of the client's neither is done.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from ..graph_import.passes.options import ApproximateCache, AsyncLora, CacheLevel, PassOptions
from ..runtime.config import Settings
from .errors import BadRequest

log: Final = logging.getLogger(__name__)

PASSES: Final = "passes"
DEFAULT_LEVELS: Final[tuple[CacheLevel, ...]] = (
    CacheLevel(similarity=0.95, skip=0.4),
    CacheLevel(similarity=0.9, skip=0.2),
)

_Positive = Annotated[float, msgspec.Meta(ge=1e-6, le=1e12)]


class AskedLevel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For texts at least this similar (cosine), skip this share of the steps."""

    similarity: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
    skip: Annotated[float, msgspec.Meta(gt=0.0, le=0.9)]


class AskedCache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Levels of the approximate cache."""

    levels: Annotated[list[AskedLevel], msgspec.Meta(min_length=1, max_length=4)]


class AskedLora(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps before the LoRAs join; without a number they are estimated."""

    steps: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    fetch_mb_per_s: _Positive = 100.0
    step_s: _Positive = 0.25


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that `passes` may hold."""

    approximate_cache: bool | AskedCache = False
    async_lora: bool | AskedLora = False


@dataclass(slots=True, frozen=True)
class PassReader:
    """Turns what clients ask for into options, as far as this server allows it.

    Args:
        folder: of the approximate cache; `cache_bytes` 0: there is none.
    """

    folder: str = ""
    cache_bytes: int = 0
    is_strict: bool = False

    @classmethod
    def of(cls, settings: Settings) -> PassReader:
        """What these settings allow."""
        cache_bytes = int(settings.latents_cache_gb * 1e9)
        return cls(str(settings.latents_directory), cache_bytes, settings.strict)

    def check(self, extra_data: Mapping[str, object]) -> None:
        """Raises: BadRequest: it makes no sense, or this server doesn't do it."""
        asked = _asked(extra_data)
        if asked.approximate_cache and self.is_strict:
            reason = "its pictures depend on what was drawn before"
            raise BadRequest("No approximate cache in strict mode", reason, type_="strict_mode")
        if asked.approximate_cache and not self.cache_bytes:
            reason = "start it with --latents-cache-gb"
            raise BadRequest("This server has no approximate cache", reason, type_="no_cache")

    def options(self, extra_data: Mapping[str, object]) -> PassOptions:
        """The options of a request; what `check` refuses is left out.

        So a request that was accepted runs after a restart with other settings, too.
        """
        try:
            asked = _asked(extra_data)
        except BadRequest as problem:
            log.warning("passes_ignored", extra={"reason": problem.text})
            return PassOptions()
        is_cached = not self.is_strict and self.cache_bytes > 0
        if asked.approximate_cache and not is_cached:
            log.warning("approximate_cache_ignored", extra={"is_strict": self.is_strict})
        return PassOptions(
            approximate_cache=self._cache(asked.approximate_cache) if is_cached else None,
            async_lora=_lora(asked.async_lora),
        )

    def _cache(self, asked: bool | AskedCache) -> ApproximateCache | None:
        levels = DEFAULT_LEVELS
        if isinstance(asked, AskedCache):
            levels = tuple(CacheLevel(similarity=a.similarity, skip=a.skip) for a in asked.levels)
        elif not asked:
            return None
        return ApproximateCache(levels=levels, folder=self.folder, max_bytes=self.cache_bytes)


def _lora(asked: bool | AskedLora) -> AsyncLora | None:
    if isinstance(asked, AskedLora):
        rate = asked.fetch_mb_per_s * 1e6
        return AsyncLora(steps=asked.steps, fetch_bytes_per_s=rate, step_s=asked.step_s)
    return AsyncLora() if asked else None


def _asked(extra_data: Mapping[str, object]) -> Asked:
    given = extra_data.get(PASSES)
    try:
        return msgspec.convert({} if given is None else given, type=Asked)
    except msgspec.ValidationError as problem:
        raise BadRequest("`extra_data.passes` makes no sense", str(problem)) from problem
