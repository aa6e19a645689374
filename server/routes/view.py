"""GET /view: a picture or another file of the folders, inert whatever its bytes are.

Source: spec comfyui-api/api.md, section 9.
"""

from __future__ import annotations

import asyncio
import io
import mimetypes
from pathlib import Path, PurePosixPath
from typing import Final

from aiohttp import hdrs, web
from PIL import Image, UnidentifiedImageError

from ..app_keys import FOLDERS
from ..errors import BadRequest
from ..files import FolderKind, Folders, UnsafeName, check_name, resolve_under, split_annotation

DECODING: web.AppKey[asyncio.Semaphore] = web.AppKey("decoding", asyncio.Semaphore)
MAX_DECODING: Final = 2  # pictures decoded at once: each may take a few hundred megabytes
MAX_PIXELS: Final = 64 * 1024 * 1024

_FORMATS: Final = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_DEFAULT_QUALITY: Final = 90
_UNKNOWN_TYPE: Final = "application/octet-stream"
# What a browser would run or apply if it were told the real type.
_ACTIVE_TYPES: Final = frozenset(
    (
        "text/html",
        "text/html-sandboxed",
        "text/javascript",
        "text/ecmascript",
        "application/javascript",
        "application/x-javascript",
        "application/ecmascript",
        "text/css",
        "text/xml",
        "application/xml",
        "text/xsl",
        "application/pdf",
        "application/x-shockwave-flash",
        "message/rfc822",
        "multipart/related",
    )
)
_INERT: Final = {
    hdrs.X_CONTENT_TYPE_OPTIONS: "nosniff",
    hdrs.CONTENT_SECURITY_POLICY: "sandbox; default-src 'none'; style-src 'unsafe-inline'",
}


async def get_view(request: web.Request) -> web.StreamResponse:
    """The file itself (with ranges), or re-encoded (`preview`), or single channels (`channel`)."""
    if "filename" not in request.query:
        return web.Response(status=404)
    try:
        path = await asyncio.to_thread(
            _locate,
            request.app[FOLDERS],
            request.query["filename"],
            request.query.get("type", FolderKind.OUTPUT),
            request.query.get("subfolder", ""),
        )
    except UnsafeName:
        return web.Response(status=403)
    except ValueError:
        return web.Response(status=400)
    if path is None:
        return web.Response(status=404)
    headers = _INERT | {hdrs.CONTENT_DISPOSITION: f'filename="{_quotable(path.name)}"'}
    preview, channel = request.query.get("preview"), request.query.get("channel", "")
    if preview is None and channel not in ("rgb", "a"):
        headers[hdrs.CONTENT_TYPE] = content_type(path.name)
        return web.FileResponse(path, headers=headers)
    async with request.app[DECODING]:
        if preview is not None:
            kind, body = await asyncio.to_thread(_preview, path, preview, channel)
        else:
            kind, body = "png", await asyncio.to_thread(_channel, path, channel)
    return web.Response(body=body, content_type=f"image/{kind}", headers=headers)


def _locate(folders: Folders, filename: str, kind: str, subfolder: str) -> Path | None:
    """The file's real path, or None if there is none.

    Raises: ValueError: no usable name or type. UnsafeName: it leaves its folder.
    """
    bare, annotated = split_annotation(filename)
    if not bare or bare.startswith("/") or ".." in bare:
        raise ValueError(filename)
    root = folders.root(annotated or FolderKind(kind))
    name = PurePosixPath(bare).name
    try:
        check_name(name)
        check_name(subfolder)
    except UnsafeName as problem:
        raise ValueError(filename) from problem
    path = resolve_under(root, subfolder, name)
    return path if path.is_file() else None


def content_type(name: str) -> str:
    """The type that a file is served as: by its suffix, but never one that a browser runs."""
    guessed, encoding = mimetypes.guess_type(name)
    if guessed is None or encoding is not None:
        return _UNKNOWN_TYPE
    if guessed in _ACTIVE_TYPES or guessed.endswith(("+xml", "script")):
        return _UNKNOWN_TYPE
    return guessed


def _quotable(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def _preview(path: Path, preview: str, channel: str) -> tuple[str, bytes]:
    """Re-encode as `FORMAT;QUALITY` says: webp or jpeg, 1 to 100."""
    words = preview.split(";")
    kind = words[0] if words[0] in ("webp", "jpeg") and "a" not in channel else "webp"
    last = words[-1]
    is_number = last.isascii() and last.isdigit() and len(last) < 10
    quality = min(max(int(last), 1), 100) if is_number else _DEFAULT_QUALITY
    image = _open(path)
    if kind == "jpeg" or channel == "rgb":
        image = image.convert("RGB")
    elif image.mode not in ("RGB", "RGBA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    file = io.BytesIO()
    image.save(file, format=kind, quality=quality)
    return kind, file.getvalue()


def _channel(path: Path, channel: str) -> bytes:
    """PNG without alpha (`rgb`), or black with the picture's alpha (`a`)."""
    image = _open(path)
    if channel == "rgb":
        image = image.convert("RGB")
    else:
        black = Image.new("RGBA", image.size)
        black.putalpha(image.convert("RGBA").getchannel("A"))
        image = black
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def _open(path: Path) -> Image.Image:
    """Decode a picture whose size is within bounds by its header. Raises: BadRequest."""
    try:
        with Image.open(path, formats=_FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise BadRequest(
                    "The picture is too large to be decoded",
                    f"{image.width} x {image.height}",
                    type_="image_too_large",
                )
            image.load()
            return image.copy()
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as problem:
        raise BadRequest(
            "The picture is too large to be decoded", str(problem), type_="image_too_large"
        ) from problem
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as problem:
        raise BadRequest("The file is no picture", type_="not_an_image") from problem
