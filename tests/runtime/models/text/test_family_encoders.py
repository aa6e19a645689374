"""Each family joins the vectors of its encoders in its own way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kit.encoder_files import (
    G_WIDTH,
    L_WIDTH,
    QWEN_WIDTH,
    T5_WIDTH,
    encode,
    loaded,
    pooled,
)
from nodeloom.graph_import.handles import T5_MIN_LENGTH, T5_MIN_PADDING
from nodeloom.runtime.errors import NodeFailed


def test_sd3_puts_its_encoders_side_by_side_and_one_after_the_other(folder: Path) -> None:
    entry = encode(loaded(folder, "sd3", "l", "g", "t5"))
    assert entry.cond.shape == (1, 77 + 77, 4096)
    clip, t5 = entry.cond[0, :77], entry.cond[0, 77:]
    assert not clip[:, L_WIDTH + G_WIDTH :].any()
    assert clip[:, : L_WIDTH + G_WIDTH].abs().min(dim=0).values.any()
    assert t5[:, :T5_WIDTH].any()
    assert not t5[:, T5_WIDTH:].any()
    assert pooled(entry).shape == (1, L_WIDTH + G_WIDTH)


@pytest.mark.parametrize(
    ("names", "tokens", "filled", "pooled_width"),
    [
        (("l",), 77, slice(0, L_WIDTH), L_WIDTH + 1280),
        (("g",), 77, slice(768, 768 + G_WIDTH), 768 + G_WIDTH),
        (("t5",), 77, slice(0, T5_WIDTH), 768 + 1280),
    ],
)
def test_zeros_stand_for_the_encoders_that_sd3_lacks(
    folder: Path, names: tuple[str, ...], tokens: int, filled: slice, pooled_width: int
) -> None:
    entry = encode(loaded(folder, "sd3", *names))
    rest = entry.cond.clone()
    rest[..., filled] = 0.0
    assert entry.cond.shape == (1, tokens, 4096)
    assert entry.cond[..., filled].any()
    assert not rest.any()
    assert pooled(entry).shape == (1, pooled_width)


def test_each_of_sd3s_encoders_may_have_a_text_of_its_own(folder: Path) -> None:
    model = loaded(folder, "sd3", "l", "g", "t5")
    texts = {"clip_l": "a cat", "t5xxl": "a bird"}
    entry = encode(model, "word " * 100, texts=texts)
    assert entry.cond.shape == (1, 2 * 77 + 77, 4096)
    # CLIP-L's second chunk is the empty text, so that both have two.
    empty = encode(model, "")
    assert torch.allclose(entry.cond[0, 77:154, :L_WIDTH], empty.cond[0, :77, :L_WIDTH], atol=1e-5)
    birds = encode(model, "a bird").cond
    assert torch.allclose(entry.cond[0, 154:], birds[0, 77:], atol=1e-5)


def test_texts_that_are_left_out_leave_t5_its_end(folder: Path) -> None:
    model = loaded(folder, "sd3", "l", "g", "t5")
    entry = encode(model, "", texts={"clip_l": "", "t5xxl": ""}, is_empty_left_out=True)
    assert entry.cond.shape == (1, 1, 4096)
    assert not pooled(entry).any()
    without_t5 = loaded(folder, "sd3", "l", "g")
    entry = encode(without_t5, "", texts={"clip_l": ""}, is_empty_left_out=True)
    assert entry.cond.shape == (1, 77, 4096)
    assert not entry.cond.any()


def test_sdxl_takes_clip_g_alone_for_its_refiner(folder: Path) -> None:
    both, refiner = loaded(folder, "sdxl", "l", "g"), loaded(folder, "sdxl", "g")
    first, second = encode(both), encode(refiner)
    assert torch.equal(first.cond[..., L_WIDTH:], second.cond)
    assert torch.equal(pooled(first), pooled(second))
    with pytest.raises(NodeFailed, match="no clip_g"):
        encode(loaded(folder, "sdxl", "l"))


def test_flux_takes_t5s_vectors_and_clip_ls_pooled_one(folder: Path) -> None:
    entry = encode(loaded(folder, "flux", "l", "t5"), "a cube")
    assert entry.cond.shape == (1, 256, T5_WIDTH)
    assert torch.equal(pooled(entry), pooled(encode(loaded(folder, "sd15", "l"), "a cube")))
    with pytest.raises(NodeFailed, match="no t5xxl"):
        encode(loaded(folder, "flux", "l"))


def test_z_image_takes_qwens_vectors_alone(folder: Path) -> None:
    model = loaded(folder, "z_image", "qwen")
    entry = encode(model, "a cube")
    assert (entry.cond.shape[2], entry.pooled) == (QWEN_WIDTH, None)
    assert encode(model, "a (cube:1.5)").cond.shape[1] > entry.cond.shape[1]  # it is all words


def test_how_far_t5_is_filled_up_may_be_chosen(folder: Path) -> None:
    model = loaded(folder, "sd3", "t5")
    model.ref = model.ref.with_option(T5_MIN_PADDING, 3).with_option(T5_MIN_LENGTH, 0)
    assert encode(model, "").cond.shape == (1, 1 + 3, 4096)


def test_padding_that_would_take_all_memory_is_refused(folder: Path) -> None:
    model = loaded(folder, "sd3", "t5")
    model.ref = model.ref.with_option(T5_MIN_PADDING, 0).with_option(T5_MIN_LENGTH, 10_000)
    with pytest.raises(NodeFailed, match="10000 tokens with its padding; 4608 are possible"):
        encode(model, "")


def test_a_long_text_with_weights_is_weighed_against_as_long_an_empty_one(folder: Path) -> None:
    model = loaded(folder, "sd3", "t5")
    plain, weighed = encode(model, "cube " * 100), encode(model, f"({'cube ' * 100}:1.5)")
    assert plain.cond.shape == weighed.cond.shape
    assert plain.cond.shape[1] > 77
    assert not torch.equal(plain.cond, weighed.cond)
