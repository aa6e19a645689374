"""Opting in to passes: what clients may ask for, and what this server doesn't do."""

from __future__ import annotations

import pytest
from nodeloom.graph_import.passes.options import (
    ApproximateCache,
    AsyncLora,
    CacheLevel,
    PassOptions,
)
from nodeloom.runtime.config import Settings
from nodeloom.server.errors import BadRequest
from nodeloom.server.pass_options import DEFAULT_LEVELS, PassReader

READER = PassReader(folder="/kept", cache_bytes=1000)
STRICT = PassReader(folder="/kept", cache_bytes=1000, is_strict=True)
NONE = PassReader()
CACHE = {"passes": {"approximate_cache": True}}


@pytest.mark.parametrize(
    "extra_data",
    [{}, {"passes": None}, {"passes": {}}, {"passes": {"approximate_cache": False}}],
)
def test_without_a_word_nothing_is_done(extra_data: dict[str, object]) -> None:
    READER.check(extra_data)
    assert READER.options(extra_data) == PassOptions()


def test_true_means_the_usual_levels() -> None:
    READER.check(CACHE)
    cache = ApproximateCache(levels=DEFAULT_LEVELS, folder="/kept", max_bytes=1000)
    assert READER.options(CACHE) == PassOptions(approximate_cache=cache)


def test_levels_and_steps_may_be_chosen() -> None:
    given = {
        "approximate_cache": {"levels": [{"similarity": 0.8, "skip": 0.3}]},
        "async_lora": {"fetch_mb_per_s": 50, "step_s": 0.1},
    }
    options = READER.options({"passes": given})
    assert options.approximate_cache is not None
    assert options.approximate_cache.levels == (CacheLevel(similarity=0.8, skip=0.3),)
    assert options.async_lora == AsyncLora(fetch_bytes_per_s=5e7, step_s=0.1)
    assert READER.options({"passes": {"async_lora": {"steps": 3}}}).async_lora == AsyncLora(steps=3)


@pytest.mark.parametrize(
    "passes",
    [
        [],
        {"unknown": True},
        {"approximate_cache": 1},
        {"approximate_cache": {"levels": []}},
        {"approximate_cache": {"levels": [{"similarity": 0.5, "skip": 0.1}] * 5}},
        {"approximate_cache": {"levels": [{"similarity": 1.5, "skip": 0.1}]}},
        {"approximate_cache": {"levels": [{"similarity": 0.5, "skip": 0.95}]}},
        {"approximate_cache": {"levels": [{"similarity": 0.5, "skip": 0.1}], "folder": "/etc"}},
        {"async_lora": {"steps": 0}},
        {"async_lora": {"step_s": 0.0}},
    ],
)
def test_what_makes_no_sense_is_refused_and_never_done(passes: object) -> None:
    with pytest.raises(BadRequest, match="makes no sense"):
        READER.check({"passes": passes})
    assert READER.options({"passes": passes}) == PassOptions()


@pytest.mark.parametrize(("reader", "word"), [(STRICT, "strict_mode"), (NONE, "no_cache")])
def test_a_server_that_has_no_cache_says_so_and_goes_on_without(
    reader: PassReader, word: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        reader.check(CACHE)
    assert refused.value.type == word
    assert reader.options(CACHE) == PassOptions()  # a request that another server accepted


def test_strict_mode_takes_loras_asynchronously() -> None:
    asked = {"passes": {"async_lora": True}}
    STRICT.check(asked)
    assert STRICT.options(asked) == PassOptions(async_lora=AsyncLora())


def test_the_settings_say_where_and_how_much(server_settings: Settings) -> None:
    reader = PassReader.of(server_settings)
    assert reader.folder == str(server_settings.user_directory / "nodeloom" / "latents")
    assert reader.cache_bytes == 250_000_000
    assert not reader.is_strict
