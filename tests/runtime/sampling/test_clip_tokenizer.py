"""CLIP's token ids and chunks against ComfyUI's, and the package data."""

from __future__ import annotations

import gzip
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.goldens import each_golden_set, load_json
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.models import clip_tokenizer
from nodeloom.runtime.models.clip_tokenizer import CHUNK_LENGTH, ClipTokenizer
from nodeloom.runtime.models.text.pieces import Chunk

DATA = Path(clip_tokenizer.__file__).parent / "data" / "clip"


def assert_chunks(got: list[Chunk], wanted: list[Any], what: str) -> None:
    ids = [[id_of(recorded) for recorded in chunk["ids"]] for chunk in wanted]
    assert [list(chunk.ids) for chunk in got] == ids, what
    for ours, theirs in zip(got, wanted, strict=True):
        weights = [float(weight) for weight in theirs.get("weights") or [1.0] * CHUNK_LENGTH]
        assert ours.weights == pytest.approx(weights, abs=1e-9), what


# Rows of the embeddings' files as ids beyond the vocabulary, by the names that texts give them.
EMBEDDINGS = {
    "gold_sdxl": [60000, 60001, 60002],
    "gold_sdxl.safetensors": [60000, 60001, 60002],
    "gold_sd15": [60010, 60011],
    "sub/gold_nested": [60020],
}


def id_of(recorded: Any) -> int:
    """The id itself, or the one that stands for a row of an embedding's file."""
    if isinstance(recorded, int):
        return recorded
    return EMBEDDINGS[recorded["file"].removesuffix(".safetensors")][recorded["row"]]


@each_golden_set
def test_chunks_of_sd15(golden_set: str) -> None:
    prompts = load_json(golden_set, "prompts.json")
    names = list(prompts["prompts"])
    assert len([name for name in names if "embed" in name]) >= 16
    assert len(names) >= 80
    for name in names:
        wanted = [prompts["chunks"][index] for index in prompts["models"]["sd15"][name]["l"]]
        got = ClipTokenizer().chunks(prompts["prompts"][name], EMBEDDINGS)
        assert_chunks(got, wanted, name)


@each_golden_set
@pytest.mark.parametrize(("encoder", "pad_id"), [("sd1.l", 49407), ("sdxl.g", 0)])
def test_chunks_of_both_paddings(golden_set: str, encoder: str, pad_id: int) -> None:
    for case in load_json(golden_set, "tokens/tokens.json"):
        assert_chunks(
            ClipTokenizer(pad_id=pad_id).chunks(case["text"]), case[encoder], case["text"]
        )


@pytest.mark.parametrize(("length", "is_cut"), [(7, False), (8, True)])
def test_a_segment_is_cut_at_a_chunk_s_end_from_eight_tokens_on(length: int, is_cut: bool) -> None:
    first, second = ClipTokenizer().chunks("cat " * 70 + f"({'dog ' * length}:1.5)")
    num_weighted = 5 if is_cut else 0
    assert first.weights.count(1.5) == num_weighted
    assert second.weights.count(1.5) == length - num_weighted


@given(st.text(max_size=400))
@settings(deadline=None)
def test_any_text_becomes_whole_chunks(text: str) -> None:
    chunks = ClipTokenizer().chunks(text)
    assert chunks
    for chunk in chunks:
        assert len(chunk.ids) == len(chunk.weights) == CHUNK_LENGTH
        assert chunk.ids[0] == 49406
        assert chunk.ids[-1] == 49407


def test_threads_may_share_a_tokenizer() -> None:
    shared = ClipTokenizer()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(shared.chunks, ["a photo of a (cat:1.2)"] * 64))
    assert all(chunks == found[0] for chunks in found)


@pytest.mark.parametrize("text", ["cat " * 30_000, "cat, " * 15_000])
def test_endless_texts_are_refused(text: str) -> None:
    with pytest.raises(NodeFailed, match=r"are possible|is longer"):
        ClipTokenizer().chunks(text)


def test_the_merges_are_the_ones_that_the_readme_names() -> None:
    packed = (DATA / "merges.txt.gz").read_bytes()
    merges = gzip.decompress(packed)
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for data in (packed, merges):
        assert hashlib.sha256(data).hexdigest() in readme
    assert len(merges.splitlines()) == 48_894
    assert "Copyright (c) 2021 OpenAI" in (DATA / "LICENSE").read_text(encoding="utf-8")
