"""The page and its files, from the `web` room. Every other GET ends here as 404.

Source: spec comfyui-api/api.md, sections 1 and 12.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web

from ... import web as web_room
from ..files import UnsafeName, resolve_under

WEB_ROOT: Final = Path(web_room.__file__).parent
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Only these leave the room: it is a Python package too.
_CONTENT_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
_SAFETY: Final = {
    hdrs.CONTENT_SECURITY_POLICY: CONTENT_SECURITY_POLICY,
    hdrs.X_CONTENT_TYPE_OPTIONS: "nosniff",
    hdrs.REFERRER_POLICY: "same-origin",
}
_NEVER_STALE: Final[dict[str, str]] = {
    hdrs.CACHE_CONTROL: "no-cache",
    hdrs.PRAGMA: "no-cache",
    hdrs.EXPIRES: "0",
}


async def get_index(request: web.Request) -> web.StreamResponse:
    """GET /: the page, never from a cache."""
    return _file(WEB_ROOT / "index.html", _NEVER_STALE)


async def get_file(request: web.Request) -> web.StreamResponse:
    """GET /{path}: a file of the page; 403 for a folder, 404 without a body for all else."""
    try:
        path = await asyncio.to_thread(resolve_under, WEB_ROOT, request.match_info["path"])
    except UnsafeName:
        return not_found()
    if path.is_dir():
        raise web.HTTPForbidden
    if path.suffix not in _CONTENT_TYPES or not path.is_file():
        return not_found()
    return _file(path, {})


def not_found() -> web.Response:
    """ComfyUI's answer to an unknown path."""
    return web.Response(status=404, content_type="application/octet-stream")


def _file(path: Path, headers: dict[str, str]) -> web.FileResponse:
    kind = {hdrs.CONTENT_TYPE: _CONTENT_TYPES[path.suffix]}
    return web.FileResponse(path, headers=_SAFETY | kind | headers)
