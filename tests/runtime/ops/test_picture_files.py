"""Picture files that are damaged, foreign or bombs are refused before they cost anything."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.runtime.errors import Cancelled
from nodeloom.runtime.ops.picture_files import MAX_FRAMES, read_picture
from PIL import Image

from .node_goldens import IMAGES


def never() -> None:
    """`check_cancelled` of a request that goes on."""


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileProblem) as caught:
        read_picture(path, never)
    assert str(path) in caught.value.message
    return str(caught.value.details["reason"])


def png(width: int, height: int) -> bytes:
    """A PNG whose header promises a size that its data never delivers."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(60000, 60000), (2**31 - 1, 2**31 - 1), (200_000_000, 1)])
def test_a_bomb_is_refused_by_its_header(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png(*size))
    assert "more than" in refusal(path)


def test_a_picture_just_below_the_limit_is_tried(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(png(13_000, 13_000))
    assert "damaged" in refusal(path)


def test_frames_are_counted_together(tmp_path: Path) -> None:
    path = tmp_path / "frames.gif"
    frames = [Image.new("L", (1, 1), index % 256) for index in range(MAX_FRAMES + 1)]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=20, optimize=False)
    assert f"more than {MAX_FRAMES} frames" in refusal(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.png", b"not a picture"),
        ("empty.png", b""),
        ("drawing.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n%%EndComments\n"),
        ("vector.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    ],
)
def test_a_file_of_another_kind_is_no_picture(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert refusal(path) == "this is no picture of a known format"


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from(sorted(path.name for path in IMAGES.iterdir())),
    place=st.integers(0, 2000),
    byte=st.integers(0, 255),
    cut=st.booleans(),
)
def test_a_damaged_picture_is_refused_or_read(
    tmp_path: Path, name: str, place: int, byte: int, cut: bool
) -> None:
    content = bytearray((IMAGES / name).read_bytes())
    place %= len(content)
    content[place] = byte
    path = tmp_path / name
    path.write_bytes(content[:place] if cut else content)
    try:
        image, mask = read_picture(path, never)
    except ModelFileProblem:
        return  # the only error that a damaged picture may raise
    assert image.dim() == 4
    assert len(image) == len(mask)


def test_frames_of_another_size_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "pages.tiff"
    pages = [Image.new("RGB", size, "red") for size in ((4, 3), (5, 3), (4, 3))]
    pages[0].save(path, save_all=True, append_images=pages[1:])
    image, mask = read_picture(path, never)
    assert image.shape == (2, 3, 4, 3)
    assert mask.shape == (2, 64, 64)


def test_a_mask_is_where_the_picture_is_transparent(tmp_path: Path) -> None:
    path = tmp_path / "half.webp"
    alpha = np.array([[0, 51, 255]], np.uint8)
    pixels = np.dstack([np.full((1, 3, 3), 200, np.uint8), alpha])
    Image.fromarray(pixels).save(path, lossless=True, exact=True)
    image, mask = read_picture(path, never)
    assert torch.allclose(mask, torch.tensor([[[1.0, 0.8, 0.0]]]))
    assert torch.allclose(image, torch.tensor(200 / 255.0))


def test_reading_many_frames_can_be_interrupted() -> None:
    def interrupt() -> None:
        raise Cancelled("interrupted")

    with pytest.raises(Cancelled):
        read_picture(IMAGES / "frames.webp", interrupt)
