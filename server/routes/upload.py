"""POST /upload/image: a file of any kind, streamed to disk.

Source: spec comfyui-api/api.md, section 9. Refusals are 400 without a body, as there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from ..app_keys import FOLDERS
from ..files import FolderKind, Folders, UnsafeName
from ..uploads import keep, staging_file

MAX_FIELDS: Final = 64
MAX_FIELD_BYTES: Final = 64 * 1024
CHUNK_TIMEOUT_S = 60.0
_CHUNK_BYTES: Final = 256 * 1024

T = TypeVar("T")


class _Refused(Exception):
    """The form is not usable."""


@dataclass(slots=True)
class _Form:
    """What came: the file under a hidden name, and the text fields."""

    staged: Path
    filename: str | None = None
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> FolderKind:
        try:
            return FolderKind(self.texts.get("type", FolderKind.INPUT))
        except ValueError as problem:
            raise _Refused from problem

    @property
    def is_overwriting(self) -> bool:
        return self.texts.get("overwrite") in ("true", "1")


async def post_upload_image(request: web.Request) -> web.Response:
    """Store the form's `image`; answers with the name that it got."""
    if request.content_type != "multipart/form-data":
        return web.Response(status=400)
    folders = request.app[FOLDERS]
    form = _Form(staged=staging_file(folders.input))
    try:
        await _read_form(request, form)
        answer = await asyncio.to_thread(_store, form, folders)
    except (_Refused, UnsafeName, ValueError, HttpProcessingError):  # the last two: broken forms
        return web.Response(status=400)
    except TimeoutError:
        return web.Response(status=408)
    finally:
        await asyncio.to_thread(form.staged.unlink, missing_ok=True)
    return web.json_response(answer)


def _store(form: _Form, folders: Folders) -> dict[str, str]:
    if form.filename is None:
        raise _Refused
    subfolder = form.texts.get("subfolder", "")
    root = folders.root(form.kind)
    root.mkdir(parents=True, exist_ok=True)
    name = keep(form.staged, root, subfolder, form.filename, overwrite=form.is_overwriting)
    return {"name": name, "subfolder": subfolder, "type": form.kind.value}


async def _read_form(request: web.Request, form: _Form) -> None:
    """Read all parts, counting every byte against the body limit."""
    room = _Room(request.client_max_size)
    reader = await request.multipart()
    for _ in range(MAX_FIELDS):
        part = await _in_time(reader.next())
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise _Refused
        if part.name == "image" and form.filename is None:
            form.filename = _file_name(part)
            with await asyncio.to_thread(form.staged.open, "xb") as file:
                await _copy(part, file, room)
        else:
            form.texts[part.name or ""] = await _text(part, room)
    raise _Refused


def _file_name(part: BodyPartReader) -> str:
    """The part's file name; leading slashes are dropped, as ComfyUI's form parser does."""
    name = (part.filename or "").lstrip("/")
    if not name:
        raise _Refused
    return name


class _Room:
    """How many bytes a request may still bring."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0

    def take(self, num_bytes: int) -> None:
        """Raises: HTTPRequestEntityTooLarge."""
        self._taken += num_bytes
        if self._limit and self._taken > self._limit:
            raise web.HTTPRequestEntityTooLarge(self._limit)


async def _in_time(reading: Awaitable[T]) -> T:
    """A client that stops in mid-upload must not hold its file for ever. Raises: TimeoutError."""
    async with asyncio.timeout(CHUNK_TIMEOUT_S):
        return await reading


async def _copy(part: BodyPartReader, file: BinaryIO, room: _Room) -> None:
    while chunk := await _in_time(part.read_chunk(_CHUNK_BYTES)):
        room.take(len(chunk))
        await asyncio.to_thread(file.write, chunk)


async def _text(part: BodyPartReader, room: _Room) -> str:
    text = bytearray()
    while chunk := await _in_time(part.read_chunk()):
        room.take(len(chunk))
        text += chunk
        if len(text) > MAX_FIELD_BYTES:
            raise _Refused
    with contextlib.suppress(UnicodeDecodeError):
        return text.decode("utf-8")
    raise _Refused
