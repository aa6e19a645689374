"""The workflow that a PNG carries in its text chunks. Bytes in, text out: no file is opened here.

Source: PNG (third edition), sections 5.3 (chunk layout) and 11.3.3 (tEXt, zTXt, iTXt).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from ..graph_import.errors import NodeloomError

PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
_TEXT_CHUNKS: Final = frozenset((b"tEXt", b"zTXt", b"iTXt"))


class NoWorkflow(NodeloomError):
    """A file that holds no workflow which can be run."""

    code = "no_workflow"


def prompt_in_png(data: bytes) -> str:
    """The text of the first chunk with keyword `prompt` of a whole PNG file.

    Raises: NoWorkflow: cut off, damaged, too long, or no such chunk.
    """
    carries_editor_format = False
    for kind, body in _text_chunks(data):
        keyword, separator, rest = body.partition(b"\0")
        if separator and keyword == b"prompt":
            return _chunk_text(kind, rest)
        carries_editor_format |= keyword == b"workflow"
    if carries_editor_format:
        raise NoWorkflow(
            "the picture carries the workflow in the editor's format only; open it in the editor "
            "and export it with 'Export (API)'"
        )
    raise NoWorkflow("the picture carries no workflow: it has no text chunk named 'prompt'")


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
    if kind == b"tEXt":
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
        raise NoWorkflow(f"the workflow in the PNG is longer than {MAX_TEXT_BYTES >> 20} MB")
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
