"""The workflows that a picture carries: bytes in, texts out. No pixel is decoded, no file opened.

PNG: text chunks called `prompt` and `workflow`, and what animated ones have in their own chunk.
WebP and JPEG: texts `prompt:...` and `workflow:...` in their EXIF data. Source: PNG (third
edition), sections 5.3 and 11.3.3; spec importer-rules.md, section 13.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

from PIL import Image

from ..graph_import.errors import NodeloomError

PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
KEYS: Final = ("prompt", "workflow")
_TEXT_CHUNKS: Final = frozenset((b"tEXt", b"zTXt", b"iTXt", b"comf"))
_EXIF_FOLDER: Final = 0x8769
_USER_COMMENT: Final = 0x9286
_COMMENT_CODES: Final = {b"ASCII\0\0\0": "utf-8", b"UNICODE\0": "utf-16-be", b"\0" * 8: "utf-8"}
_KEYED: Final = re.compile(r"\s*(prompt|workflow)\s*:\s*(.*)", re.IGNORECASE | re.DOTALL)


class NoWorkflow(NodeloomError):
    """A file that holds no workflow which can be run."""

    code = "no_workflow"


def is_picture(data: bytes) -> bool:
    """Whether it is a picture of a kind that can carry a workflow."""
    return data.startswith((PNG_SIGNATURE, JPEG_SIGNATURE)) or _is_webp(data)


def embedded(data: bytes) -> dict[str, str]:
    """The texts called `prompt` and `workflow` of a whole picture file.

    Raises: NoWorkflow: cut off, damaged, too long, or there is neither.
    """
    is_png = data.startswith(PNG_SIGNATURE)
    found: dict[str, str] = {}
    for key, text in _png_texts(data) if is_png else _exif_texts(data):
        found.setdefault(key, text)
    if not found:
        raise NoWorkflow(
            "the picture carries no workflow: it has no text called 'prompt' or 'workflow'"
        )
    return found


def _is_webp(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def _png_texts(data: bytes) -> Iterator[tuple[str, str]]:
    for kind, body in _text_chunks(data):
        keyword, separator, rest = body.partition(b"\0")
        key = keyword.decode("latin-1").lower()
        if separator and key in KEYS:
            yield key, _chunk_text(kind, rest)


def _text_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(PNG_SIGNATURE)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        end = at + 8 + length
        if end + 4 > len(data):
            break
        if kind in _TEXT_CHUNKS:
            yield kind, data[at + 8 : end]
        if kind == b"IEND":
            return
        at = end + 4
    raise NoWorkflow("the PNG is cut off: its end is missing")


def _chunk_text(kind: bytes, rest: bytes) -> str:
    """The text of a chunk, given what follows its keyword and zero byte."""
    if kind in (b"tEXt", b"comf"):
        return _within(rest).decode("latin-1")
    if kind == b"zTXt":
        return _inflate(rest[1:]).decode("latin-1")
    is_packed = rest[:1] == b"\1"
    parts = rest[2:].split(b"\0", 2)  # language, translated keyword, text
    if len(parts) != 3:
        raise NoWorkflow("the text chunk of the PNG is damaged")
    text = _inflate(parts[2]) if is_packed else _within(parts[2])
    return text.decode("utf-8", "replace")


def _within(text: bytes) -> bytes:
    if len(text) > MAX_TEXT_BYTES:
        raise NoWorkflow(f"the workflow in the picture is longer than {MAX_TEXT_BYTES >> 20} MB")
    return text


def _inflate(packed: bytes) -> bytes:
    """Decompress up to the limit, so that a small file can't fill the memory."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, MAX_TEXT_BYTES + 1)
    except zlib.error as problem:
        raise NoWorkflow("the compressed text of the PNG is damaged") from problem
    if not unpacker.eof and len(text) <= MAX_TEXT_BYTES:
        raise NoWorkflow("the compressed text of the PNG is damaged")
    return _within(text)


def _exif_texts(data: bytes) -> Iterator[tuple[str, str]]:
    for text in _exif_values(data):
        keyed = _KEYED.fullmatch(text.strip("\0 "))
        if keyed:
            yield keyed.group(1).lower(), keyed.group(2)


def _exif_values(data: bytes) -> Iterator[str]:
    """The texts of the EXIF data; Pillow reads headers here, not pixels."""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "WEBP")) as picture:
            exif = picture.getexif()
            values = [*exif.values(), exif.get_ifd(_EXIF_FOLDER).get(_USER_COMMENT)]
    except Exception as problem:  # Pillow raises whatever its parsers meet in damaged files
        raise NoWorkflow(f"the picture can't be read: {problem}") from problem
    for value in values:
        text = _text(value)
        if text is not None:
            yield text


def _text(value: Any) -> str | None:
    """A tag's text; UTF-8 where it is that, though EXIF says ASCII."""
    if isinstance(value, str):
        value = value.encode("latin-1", "replace")
    if not isinstance(value, bytes):
        return None
    code = _COMMENT_CODES.get(value[:8])
    if code is not None:
        value = value[8:]
    return _within(value).decode(code or "utf-8", "replace")
