"""What holds for every route: origin check or CORS, body limit, cache headers, errors as answers.

Source: spec comfyui-api/api.md, section 13.
"""

from __future__ import annotations

import ipaddress
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import SplitResult, urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from ..graph_import.errors import NodeloomError
from .errors import PageRefused, error_response

_IMAGE_SUFFIXES: Final = frozenset(
    (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
)
_REDIRECTS: Final = frozenset((302, 303, 307))


def is_foreign(host: str, origin: str) -> bool:
    """Whether a page of `origin` must not talk to a server that was called `host`.

    Only a loopback host is guarded; host names must be equal then, and ports where both are given.
    An origin of `null` passes. What can't be parsed is foreign.
    """
    if not host or not origin or origin == "null":
        return False
    try:
        called = urlsplit(f"//{host}")
        asking = urlsplit(origin)
        ports = (called.port, asking.port)
    except ValueError:
        return True
    if not _is_loopback(called):
        return False
    if called.hostname != asking.hostname:
        return asking.hostname is not None
    return None not in ports and ports[0] != ports[1]


def _is_loopback(called: SplitResult) -> bool:
    name = called.hostname or ""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@web.middleware
async def check_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse foreign pages; answer OPTIONS on any path."""
    host = request.headers.get(hdrs.HOST, "")
    if is_foreign(host, request.headers.get(hdrs.ORIGIN, "")):
        return web.Response(status=403)
    if request.method == hdrs.METH_OPTIONS:
        return web.Response()
    return await handler(request)


def check_sender(request: web.Request) -> None:
    """For routes behind which users' Python may run: more than `check_origin` asks.

    A browser sends JSON to a foreign server only after it has asked, and we never say yes (but to
    the origin of `--enable-cors-header`). A frame without an origin sends `null`.
    Raises: PageRefused.
    """
    if request.headers.get(hdrs.ORIGIN) == "null":
        raise PageRefused("a page without an origin can't do this")
    if request.body_exists and request.content_type != "application/json":
        raise PageRefused("send this with Content-Type: application/json")


def allow_cors(origin: str) -> Middleware:
    """Instead of the origin check: tell browsers that pages of `origin` may call us."""
    headers = {
        hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: origin,
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: "POST, GET, DELETE, PUT, OPTIONS, PATCH",
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: "Content-Type, Authorization",
        hdrs.ACCESS_CONTROL_ALLOW_CREDENTIALS: "true",
    }

    @web.middleware
    async def add_cors(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_question = request.method == hdrs.METH_OPTIONS
        response = web.Response() if is_question else await handler(request)
        if not response.prepared:
            response.headers.update(headers)
        return response

    return add_cors


@web.middleware
async def limit_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a body that says it is too long before reading it; `read` and uploads count bytes."""
    limit = request.client_max_size
    if limit and (request.content_length or 0) > limit:
        raise web.HTTPRequestEntityTooLarge(limit)
    return await handler(request)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors that were raised on purpose into answers."""
    try:
        return await handler(request)
    except NodeloomError as problem:
        return error_response(problem)


@web.middleware
async def cache_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Say by the path how long an answer may be kept; headers that are there already stay."""
    response = await handler(request)
    rule = cache_rule(request.path, response.status)
    if rule is not None and not response.prepared:
        response.headers.setdefault(hdrs.CACHE_CONTROL, rule)
    return response


def cache_rule(path: str, status: int) -> str | None:
    """The Cache-Control of a path, or None. The static front end's 404 counts as a success."""
    name = PurePosixPath(path).name.lower()
    suffix = PurePosixPath(name).suffix
    if suffix in (".js", ".css") or (name.startswith("index") and suffix == ".json"):
        return "no-cache"
    if suffix not in _IMAGE_SUFFIXES or status == 304:
        return None
    if status in _REDIRECTS:
        return "no-cache"
    return "public, max-age=86400"
