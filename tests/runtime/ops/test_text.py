"""The op that encodes a text for each encoder: what it hands on, and what it adds."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import torch
from kit.goldens import KEPT
from kit.op_calls import run_op
from kit.small_encoders import SmallEncoders
from nodeloom.runtime.models.text.family_encoder import FamilyTextEncoder
from nodeloom.runtime.values import CondEntry, Conditioning
from safetensors.torch import load_file

NUMBERS = {"width": 1024, "height": 768, "crop_w": 8, "crop_h": 16}


@pytest.fixture(scope="module")
def encoder() -> FamilyTextEncoder:
    clip = json.loads((KEPT / "clip.json").read_text("utf-8"))
    return SmallEncoders(load_file(KEPT / "clip_weights.safetensors"), clip).family("sdxl")


def encoded(model: FamilyTextEncoder, op: str, args: Mapping[str, object]) -> CondEntry:
    (conditioning,) = run_op(op, args, model=model).outputs
    assert isinstance(conditioning, Conditioning)
    (entry,) = conditioning.entries
    return entry


def test_a_text_of_its_own_goes_to_its_encoder(encoder: FamilyTextEncoder) -> None:
    args = {"text": "a dog", "text_clip_l": "a cat", **NUMBERS}
    entry = encoded(encoder, "text_encode_each", args)
    cat = encoded(encoder, "text_encode", {"text": "a cat"})
    dog = encoded(encoder, "text_encode", {"text": "a dog"})
    assert torch.allclose(entry.cond[..., :64], cat.cond[..., :64], atol=1e-5)
    assert torch.allclose(entry.cond[..., 64:], dog.cond[..., 64:], atol=1e-5)
    assert dict(entry.more.numbers) == NUMBERS
    assert entry.more.guidance is None


def test_both_encoders_get_as_many_chunks(encoder: FamilyTextEncoder) -> None:
    args = {"text": "word " * 100, "text_clip_l": "a cat"}
    assert encoded(encoder, "text_encode_each", args).cond.shape[1] == 2 * 77


def test_a_score_and_a_scale_are_told_under_the_denoisers_names(
    encoder: FamilyTextEncoder,
) -> None:
    entry = encoded(encoder, "text_encode_each", {"text": "a", "ascore": 2.5, "guidance": 4.0})
    assert entry.more.numbers == (("aesthetic_score", 2.5),)
    assert entry.more.guidance == 4.0
