"""The workflow in a picture: every place for it, and files that want to do harm."""

from __future__ import annotations

import contextlib
import io
import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodeloom.server.embedded import MAX_TEXT_BYTES, NoWorkflow, embedded, is_picture
from PIL import Image
from PIL.PngImagePlugin import PngInfo


def png(info: PngInfo) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "png", pnginfo=info)
    return file.getvalue()


def picture(kind: str, exif: Image.Exif) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, kind, exif=exif)
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
    assert embedded(png(plain)) == {"workflow": "{}", "prompt": "caf\u00e9"}
    assert embedded(png(international)) == {"prompt": "\u65e5\u672c"}


def test_a_picture_without_a_workflow_says_so() -> None:
    with pytest.raises(NoWorkflow, match="no text called 'prompt'"):
        embedded(png(PngInfo()))


def test_animated_pictures_have_chunks_of_their_own() -> None:
    assert embedded(with_chunk(b"comf", b"workflow\0{}")) == {"workflow": "{}"}


@pytest.mark.parametrize("kind", ["WEBP", "JPEG"])
def test_exif_texts_are_read_as_comfyui_and_others_write_them(kind: str) -> None:
    exif = Image.Exif()
    exif[0x0110] = 'prompt:{"a": "caf\u00e9"}'
    exif[0x010F] = "Workflow: {}"
    exif[0x010E] = "a holiday"
    found = embedded(picture(kind, exif))
    assert found["workflow"] == "{}"
    assert json.loads(found["prompt"])["a"].startswith("caf")


@pytest.mark.parametrize(
    "comment", [b"ASCII\0\0\0workflow: {}", b"UNICODE\0" + "workflow: {}".encode("utf-16-be")]
)
def test_a_users_comment_is_read(comment: bytes) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9286] = comment
    assert embedded(picture("JPEG", exif)) == {"workflow": "{}"}


@pytest.mark.parametrize("kind", ["WEBP", "JPEG"])
def test_other_pictures_without_a_workflow_say_so(kind: str) -> None:
    assert is_picture(picture(kind, Image.Exif()))
    with pytest.raises(NoWorkflow, match="carries no workflow"):
        embedded(picture(kind, Image.Exif()))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_garbled_pictures_are_read_or_refused(data: st.DataObject) -> None:
    exif = Image.Exif()
    exif[0x0110] = "prompt:{}"
    info = PngInfo()
    info.add_text("prompt", "{}" * 20, zip=True)
    whole = bytearray(
        data.draw(st.sampled_from([picture("WEBP", exif), picture("JPEG", exif), png(info)]))
    )
    for place in data.draw(st.lists(st.integers(12, len(whole) - 1), max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(12, len(whole)))
    with contextlib.suppress(NoWorkflow):
        assert embedded(bytes(whole[:cut])).keys() <= {"prompt", "workflow"}


@pytest.mark.parametrize("length", [8, 20, 60])
def test_a_cut_off_picture_is_refused(length: int) -> None:
    with pytest.raises(NoWorkflow, match="cut off"):
        embedded(png(PngInfo())[:length])


def test_a_chunk_length_beyond_the_file_is_refused() -> None:
    whole = bytearray(png(PngInfo()))
    whole[8:12] = b"\xff\xff\xff\xff"
    with pytest.raises(NoWorkflow, match="cut off"):
        embedded(bytes(whole))


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
        embedded(with_chunk(kind, body))


def test_a_small_chunk_that_unpacks_beyond_the_limit_is_refused() -> None:
    bomb = with_chunk(b"zTXt", b"prompt\0\0" + zlib.compress(b"x" * (MAX_TEXT_BYTES + 1)))
    assert len(bomb) < 100_000
    with pytest.raises(NoWorkflow, match="longer than"):
        embedded(bomb)


def test_exactly_the_limit_is_read() -> None:
    largest = with_chunk(b"zTXt", b"prompt\0\0" + zlib.compress(b"x" * MAX_TEXT_BYTES))
    assert len(embedded(largest)["prompt"]) == MAX_TEXT_BYTES
