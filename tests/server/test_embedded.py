"""The workflow in a PNG: every kind of text chunk, and files that want to do harm."""

from __future__ import annotations

import io
import zlib

import pytest
from nodeloom.server.embedded import MAX_TEXT_BYTES, NoWorkflow, prompt_in_png
from PIL import Image
from PIL.PngImagePlugin import PngInfo


def png(info: PngInfo) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "png", pnginfo=info)
    return file.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(kind + body)
    return len(body).to_bytes(4, "big") + kind + body + checksum.to_bytes(4, "big")


def with_chunk(kind: bytes, body: bytes) -> bytes:
    """A PNG with `body` as a chunk after its header."""
    whole = png(PngInfo())
    return whole[:33] + chunk(kind, body) + whole[33:]


@pytest.mark.parametrize("is_packed", [False, True])
def test_latin_and_international_texts_are_read_plain_and_packed(is_packed: bool) -> None:
    plain, international = PngInfo(), PngInfo()
    plain.add_text("workflow", "{}")
    plain.add_text("prompt", "caf\u00e9", zip=is_packed)
    international.add_itxt("prompt", "\u65e5\u672c", lang="ja", tkey="x", zip=is_packed)
    assert prompt_in_png(png(plain)) == "caf\u00e9"
    assert prompt_in_png(png(international)) == "\u65e5\u672c"


def test_a_picture_without_a_workflow_says_so() -> None:
    with pytest.raises(NoWorkflow, match="no text chunk named 'prompt'"):
        prompt_in_png(png(PngInfo()))


def test_the_editors_format_alone_says_how_to_export() -> None:
    info = PngInfo()
    info.add_text("workflow", "{}")
    with pytest.raises(NoWorkflow, match=r"Export \(API\)"):
        prompt_in_png(png(info))


@pytest.mark.parametrize("length", [8, 20, 60])
def test_a_cut_off_picture_is_refused(length: int) -> None:
    with pytest.raises(NoWorkflow, match="cut off"):
        prompt_in_png(png(PngInfo())[:length])


def test_a_chunk_length_beyond_the_file_is_refused() -> None:
    whole = bytearray(png(PngInfo()))
    whole[8:12] = b"\xff\xff\xff\xff"
    with pytest.raises(NoWorkflow, match="cut off"):
        prompt_in_png(bytes(whole))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"zTXt", b"prompt\0\0no zlib"),
        (b"zTXt", b"prompt\0\0" + zlib.compress(b"x" * 1000)[:-8]),
        (b"iTXt", b"prompt\0\0\0"),
    ],
)
def test_damaged_texts_are_refused(kind: bytes, body: bytes) -> None:
    with pytest.raises(NoWorkflow, match="damaged"):
        prompt_in_png(with_chunk(kind, body))


def test_a_small_chunk_that_unpacks_beyond_the_limit_is_refused() -> None:
    bomb = with_chunk(b"zTXt", b"prompt\0\0" + zlib.compress(b"x" * (MAX_TEXT_BYTES + 1)))
    assert len(bomb) < 100_000
    with pytest.raises(NoWorkflow, match="longer than"):
        prompt_in_png(bomb)


def test_exactly_the_limit_is_read() -> None:
    largest = with_chunk(b"zTXt", b"prompt\0\0" + zlib.compress(b"x" * MAX_TEXT_BYTES))
    assert len(prompt_in_png(largest)) == MAX_TEXT_BYTES
