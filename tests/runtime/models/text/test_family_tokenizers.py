"""Texts of every family against ComfyUI's, what no text may break, and the package data."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.goldens import each_golden_set, golden_folder
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.text_encoders import CLIP_G, CLIP_L, QWEN3_4B, T5XXL
from nodeloom.runtime import models
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.models.text.family_tokenizers import (
    QWEN3_2B,
    QWEN25_3B,
    encoder_chunks,
    tokenizers,
)
from nodeloom.runtime.models.text.tokenizer import MAX_PADDING, MAX_TOKENS, Padding

import conformance.case
from conformance.case import exceptions_at
from conformance.prompts import cases

DATA = Path(models.__file__).parent / "data"
T5_WORDS = 32_100
T5_END = 1
QWEN_WORDS = 151_669
QWEN_PAD = 151_643
TURN_BEGINS, TURN_ENDS = 151_644, 151_645
# What texts are made of here: anything, and what is easily read wrongly.
TEXTS = st.lists(
    st.text(max_size=12)
    | st.sampled_from(
        [
            "(",
            ")",
            "((",
            "\\(",
            ":1.3)",
            "(a:",
            "</s>",
            "<pad>",
            "<|im_end|>",
            " embedding:",
            "\x00",
        ]
    ),
    max_size=20,
).map("".join)


@each_golden_set
def test_every_recorded_text_comes_out_alike(golden_set: str) -> None:
    reasons = exceptions_at(Path(conformance.case.__file__).with_name("exceptions.toml"))
    outcomes = {case.name: case for case in cases(golden_folder(golden_set))}
    listed = {name for name in outcomes if name in reasons}
    missed = [name for name, case in outcomes.items() if name not in listed and _misses(case)]
    assert missed == []
    assert len(outcomes) - len(listed) >= 500
    assert all("aura" in name or "PixArt" in name for name in listed)


def _misses(case: conformance.case.Case) -> bool:
    return not case.run().passes


@given(TEXTS)
@settings(deadline=None)
def test_any_text_for_t5_is_one_padded_chunk(text: str) -> None:
    (chunk,) = tokenizers("flux")[T5XXL].chunks(text, {"x": [40_000, 40_001]})
    assert len(chunk.ids) == len(chunk.weights) == len(chunk.words) >= 256
    assert all(id_ < T5_WORDS or id_ in (40_000, 40_001) for id_ in chunk.ids)
    num_words = sum(word > 0 for word in chunk.words)
    assert chunk.ids[num_words:] == (T5_END,) + (0,) * (len(chunk.ids) - num_words - 1)
    assert set(chunk.weights[num_words:]) == {1.0}


@given(TEXTS)
@settings(deadline=None)
@pytest.mark.parametrize(
    ("family", "encoder", "shortest"),
    [("z_image", QWEN3_4B, 8), ("ovis", QWEN3_2B, 284), ("omnigen2", QWEN25_3B, 25)],
)
def test_any_text_for_qwen_is_one_chunk_in_its_template(
    family: str, encoder: str, shortest: int, text: str
) -> None:
    (chunk,) = tokenizers(family)[encoder].chunks(text)
    assert len(chunk.ids) == len(chunk.weights) == len(chunk.words) >= shortest - 1
    assert max(chunk.ids) < QWEN_WORDS
    assert chunk.ids[0] == TURN_BEGINS
    assert TURN_ENDS in chunk.ids
    num_words = sum(word > 0 for word in chunk.words)
    assert set(chunk.ids[num_words:]) <= {QWEN_PAD}
    if family != "omnigen2":
        assert set(chunk.weights) == {1.0}


@given(st.integers(0, 600), st.integers(0, 50), st.integers(0, 300))
@settings(deadline=None, max_examples=30)
def test_padding_reaches_both_of_its_minima(length: int, padding: int, num_words: int) -> None:
    given = Padding(min_length=length, min_padding=padding)
    (chunk,) = tokenizers("sd3", given)[T5XXL].chunks("cat " * num_words)
    assert len(chunk.ids) == max(length, num_words + 1 + padding)


@pytest.mark.parametrize("number", [-1, MAX_PADDING + 1])
@pytest.mark.parametrize("name", ["min_length", "min_padding"])
def test_padding_out_of_range_is_refused(name: str, number: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is {number}; 0 to {MAX_PADDING}"):
        Padding(**{name: number})


@pytest.mark.parametrize(("family", "encoder"), [("flux", T5XXL), ("z_image", QWEN3_4B)])
def test_a_text_of_too_many_tokens_is_refused(family: str, encoder: str) -> None:
    with pytest.raises(NodeFailed, match=f"tokens; {MAX_TOKENS} are possible"):
        tokenizers(family)[encoder].chunks("cat " * (MAX_TOKENS + 1))


def test_names_of_embeddings_are_vectors_for_t5_and_words_for_qwen() -> None:
    vectors = {"x": [200_000, 200_001]}
    t5 = tokenizers("flux")[T5XXL]
    qwen = tokenizers("z_image")[QWEN3_4B]
    assert (t5.takes_embeddings, qwen.takes_embeddings) == (True, False)
    assert t5.chunks("embedding:x", vectors)[0].ids[:3] == (200_000, 200_001, T5_END)
    assert max(qwen.chunks("embedding:x", vectors)[0].ids) < QWEN_WORDS


def test_the_shorter_of_two_clip_texts_is_filled_up_with_empty_chunks() -> None:
    both = tokenizers("sdxl")
    chunks = encoder_chunks(both, {CLIP_L: "cat", CLIP_G: "cat " * 160})
    assert len(chunks[CLIP_G]) == 3
    assert chunks[CLIP_L] == both[CLIP_L].chunks("cat") + both[CLIP_L].chunks("") * 2


def test_empty_texts_may_be_left_out() -> None:
    texts = {CLIP_L: "", CLIP_G: "cat", T5XXL: ""}
    chunks = encoder_chunks(tokenizers("sd3"), texts, is_empty_left_out=True)
    assert [len(chunks[name]) for name in (CLIP_L, CLIP_G, T5XXL)] == [1, 1, 0]


def test_a_family_without_tokenizers_is_refused_by_name() -> None:
    with pytest.raises(ModelFileProblem, match="the family aura has no tokenizer here"):
        tokenizers("aura")


def test_threads_may_share_tokenizers() -> None:
    shared = [*tokenizers("flux").values(), *tokenizers("z_image").values()]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [one.chunks("a (cat:1.2)") for one in shared], range(64)))
    assert all(chunks == found[0] for chunks in found)


def test_asking_for_tokenizers_reads_no_vocabulary() -> None:
    code = (
        "from nodeloom.runtime.models import clip_tokenizer as clip;"
        "from nodeloom.runtime.models.text import family_tokenizers as families;"
        "from nodeloom.runtime.models.text import qwen_tokenizer as qwen, t5_tokenizer as t5;"
        "[families.tokenizers(name) for name in ('flux', 'z_image')];"
        "sizes = [room._vocabulary.cache_info().currsize for room in (clip, t5, qwen)];"
        "assert sizes == [0, 0, 0], sizes"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(
    ("folder", "file", "source"),
    [("t5", "tokenizer.json.gz", "Google"), ("qwen", "merges.txt.gz", "Alibaba")],
)
def test_the_data_is_what_its_readme_names(folder: str, file: str, source: str) -> None:
    packed = (DATA / folder / file).read_bytes()
    readme = (DATA / folder / "README.md").read_text(encoding="utf-8")
    for data in (packed, gzip.decompress(packed)):
        assert hashlib.sha256(data).hexdigest() in readme
    assert source in readme
    licence = (DATA / folder / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
