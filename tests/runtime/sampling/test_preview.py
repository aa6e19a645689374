"""Previews: the linear map, the tiny decoder, and what happens where its file is no use."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from kit.taesd import DECODER_FILE, write_decoder
from nodeloom.graph_import.families import family
from nodeloom.runtime.models.taesd import TinyDecoder
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.sampling.preview import MAX_DECODED, Previews
from nodeloom.runtime.sampling.preview_decoders import PreviewDecoders
from PIL import Image

SIZE = 64
SD15 = family("sd15")


@pytest.fixture
def latents() -> torch.Tensor:
    """Two latents; one is shown."""
    return torch.randn(2, 4, 8, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def linear(latents: torch.Tensor) -> bytes:
    """The preview by the linear map."""
    return Previews(SIZE, (), "cpu").jpeg("latent2rgb", latents, SD15)


def previews(*folders: Path) -> Previews:
    return Previews(SIZE, folders, "cpu")


def pixels(jpeg: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(jpeg)) as picture:
        assert picture.format == "JPEG"
        return np.asarray(picture, dtype=np.float64)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


def test_the_tiny_decoder_draws_the_preview(
    tmp_path: Path, latents: torch.Tensor, linear: bytes
) -> None:
    path = write_decoder(tmp_path / DECODER_FILE)
    shown = previews(tmp_path).jpeg("taesd", latents, SD15)
    decoded = TinyDecoder.load(identify(path), "cpu").decode(latents[:1])[0].mul(255.0)
    expected = io.BytesIO()
    Image.fromarray(decoded.to(torch.uint8).numpy()).save(expected, format="JPEG", quality=95)
    assert decoded.shape == (64, 32, 3)
    assert decoded.std() > 10.0
    assert shown == expected.getvalue()
    assert np.abs(pixels(shown) - pixels(linear)).mean() > 10.0


@pytest.mark.parametrize("method", ["auto", "latent2rgb"])
def test_other_methods_leave_the_decoder_alone(
    tmp_path: Path, latents: torch.Tensor, linear: bytes, method: str
) -> None:
    write_decoder(tmp_path / DECODER_FILE)
    assert previews(tmp_path).jpeg(method, latents, SD15) == linear


def test_a_preview_draws_no_random_numbers_and_changes_no_latents(
    tmp_path: Path, latents: torch.Tensor
) -> None:
    write_decoder(tmp_path / DECODER_FILE)
    before, kept = torch.random.get_rng_state(), latents.clone()
    previews(tmp_path).jpeg("taesd", latents, SD15)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(latents, kept)


def test_the_first_folder_with_the_file_wins(tmp_path: Path, latents: torch.Tensor) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    write_decoder(second / DECODER_FILE, seed=1)
    write_decoder(third / DECODER_FILE, seed=2)
    shown = previews(first, second, third).jpeg("taesd", latents, SD15)
    assert shown == previews(second).jpeg("taesd", latents, SD15)
    assert shown != previews(third).jpeg("taesd", latents, SD15)


def test_without_the_file_the_linear_map_is_used_and_the_log_says_so_once(
    tmp_path: Path, latents: torch.Tensor, linear: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    made = previews(tmp_path)
    assert [made.jpeg("taesd", latents, SD15) for _ in range(3)] == [linear] * 3
    assert events(caplog) == ["preview_decoder_missing"]
    write_decoder(tmp_path / DECODER_FILE)
    assert made.jpeg("taesd", latents, SD15) != linear


def test_a_broken_file_is_named_once_until_it_is_mended(
    tmp_path: Path, latents: torch.Tensor, linear: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / DECODER_FILE
    path.write_bytes(b"this is no decoder")
    made = previews(tmp_path)
    assert [made.jpeg("taesd", latents, SD15) for _ in range(3)] == [linear] * 3
    assert events(caplog) == ["preview_decoder_refused"]
    assert DECODER_FILE in caplog.records[0].__dict__["reason"]
    write_decoder(path)
    assert made.jpeg("taesd", latents, SD15) != linear


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(
    tmp_path: Path, latents: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    made = previews(tmp_path)
    shown = []
    for width in (8, 8, 16):
        if width != 8 or not shown:
            write_decoder(tmp_path / DECODER_FILE, width=width)
        shown.append(made.jpeg("taesd", latents, SD15))
    assert shown[0] == shown[1] != shown[2]
    assert events(caplog) == ["preview_decoder_loaded"] * 2


def test_decoders_are_read_again_after_they_were_dropped(
    tmp_path: Path, latents: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    write_decoder(tmp_path / DECODER_FILE)
    made = previews(tmp_path)
    shown = made.jpeg("taesd", latents, SD15)
    made.drop_decoders()
    assert made.jpeg("taesd", latents, SD15) == shown
    assert events(caplog) == ["preview_decoder_loaded"] * 2


def test_a_decoder_of_another_family_is_refused(
    tmp_path: Path, latents: torch.Tensor, linear: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write_decoder(tmp_path / DECODER_FILE, latent_channels=16)
    assert previews(tmp_path).jpeg("taesd", latents, SD15) == linear
    assert "16 channels" in caplog.records[0].__dict__["reason"]


def test_a_pickled_decoder_is_not_used_and_the_log_says_why(
    tmp_path: Path, latents: torch.Tensor, linear: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taesd_decoder.pth").write_bytes(b"PK\x03\x04" + bytes(100))
    assert previews(tmp_path).jpeg("taesd", latents, SD15) == linear
    assert "unpickled" in caplog.records[0].__dict__["reason"]


def test_a_decoder_that_fails_while_decoding_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_decoder(tmp_path / DECODER_FILE)
    decoders = PreviewDecoders((tmp_path,), "cpu")
    of_three_channels = torch.zeros(1, 3, 8, 8)
    assert [decoders.decode(of_three_channels, SD15) for _ in range(3)] == [None] * 3
    assert events(caplog) == ["preview_decoder_failed"]


def test_large_latents_are_shown_by_the_linear_map(tmp_path: Path) -> None:
    write_decoder(tmp_path / DECODER_FILE)
    large = torch.zeros(1, 4, 128, MAX_DECODED // 128 + 1)
    made = previews(tmp_path)
    assert made.jpeg("taesd", large, SD15) == made.jpeg("latent2rgb", large, SD15)


@pytest.mark.parametrize("method", ["latent2rgb", "taesd"])
def test_the_thinnest_latents_have_a_preview(tmp_path: Path, method: str) -> None:
    write_decoder(tmp_path / DECODER_FILE)
    shown = pixels(previews(tmp_path).jpeg(method, torch.zeros(1, 4, 1, 500), SD15))
    assert shown.shape == (1, SIZE, 3)
