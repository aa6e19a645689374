"""Request bodies as JSON: size, depth and numbers are bounded before anything looks at them."""

from __future__ import annotations

import json
import math
from typing import Final, NoReturn

from aiohttp import web

from .errors import BadRequest

MAX_DEPTH: Final = 128
MAX_VALUES: Final = 1_000_000  # parsing stops the event loop: a second at most
MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**64 - 1


async def read_object(request: web.Request, max_bytes: int | None = None) -> dict[str, object]:
    """The body as a JSON object, whatever its Content-Type says.

    Raises: BadRequest. HTTPRequestEntityTooLarge: it is longer than `max_bytes`.
    """
    declared_bytes = request.content_length or 0  # it may come in pieces, without a length
    if max_bytes is not None and max(declared_bytes, len(await request.read())) > max_bytes:
        raise web.HTTPRequestEntityTooLarge(max_bytes)
    value = parse(await request.read())
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object", type_="invalid_json")
    return value


def parse(body: bytes) -> object:
    """JSON text as a value that can be stored and sent again.

    Raises: BadRequest: not JSON, nested deeper than MAX_DEPTH, an integer beyond 64 bits, NaN or
    infinity, text that isn't valid Unicode, more than MAX_VALUES values.
    """
    check_count(body)
    try:
        value: object = json.loads(body, parse_constant=_refuse_constant)
    except RecursionError as problem:
        raise _bad("nested too deeply") from problem
    except ValueError as problem:  # bad JSON, bad UTF-8, an integer of too many digits
        raise _bad(str(problem)) from problem
    check_storable(value)
    if b"\\u" in body:
        check_text(value)
    return value


def check_count(body: bytes) -> None:
    """Whether JSON text has few enough values to be parsed. Raises: BadRequest."""
    # Each value stands behind one of these; those in texts are counted too, which costs nobody.
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise _bad(f"more than {MAX_VALUES} values")


def check_text(value: object) -> None:
    """Whether all text in a JSON value of bounded depth is Unicode. Raises: BadRequest."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as problem:
        raise _bad("text with half a surrogate pair") from problem


def check_storable(value: object) -> None:
    """Whether a JSON value survives being stored. Raises: BadRequest: depth, or a number.

    Walks level by level: no recursion, so that depth can't hurt.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, int) and not MIN_INTEGER <= item <= MAX_INTEGER:
                raise _bad("an integer beyond 64 bits")
            elif isinstance(item, float) and not math.isfinite(item):
                raise _bad("a number that is not finite")
        if not below:
            return
        level = below
    raise _bad(f"nested deeper than {MAX_DEPTH} levels")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _bad(details: str) -> BadRequest:
    return BadRequest("The body is not usable JSON", details, type_="invalid_json")
