"""/nodeloom/workflows: register, list, look at, delete."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from ..app_keys import REGISTRAR
from ..errors import BadRequest
from ..json_body import read_object
from ..middleware import check_sender
from ..workflows.registrar import listed, read_registration

MAX_BODY_BYTES: Final = 8 << 20


async def put_workflow(request: web.Request) -> web.Response:
    """Register a file of the owner's folder, or a graph: 201 with a new version, else 200."""
    check_sender(request)
    body = await read_object(request, MAX_BODY_BYTES)
    registrar = request.app[REGISTRAR]
    name = request.match_info["name"]
    version, is_new = await registrar.register(name, read_registration(body))
    numbers = await registrar.store.numbers(name)
    return web.json_response(listed(version, numbers), status=201 if is_new else 200)


async def get_workflows(request: web.Request) -> web.Response:
    """The current version of every workflow, with typed inputs, by name."""
    return web.json_response(await request.app[REGISTRAR].store.summaries())


async def get_workflow(request: web.Request) -> web.Response:
    """One workflow: its current version, and which versions there are."""
    store = request.app[REGISTRAR].store
    name = request.match_info["name"]
    version = await store.version(name)
    return web.json_response(listed(version, await store.numbers(name)))


async def get_version(request: web.Request) -> web.Response:
    """One version; of a graph with the graph itself."""
    number = version_number(request.match_info["version"])
    version = await request.app[REGISTRAR].store.version(request.match_info["name"], number)
    described = version.describe()
    if described["kind"] == "graph":
        source = msgspec.to_builtins(version.source)
        described |= {"prompt": source["prompt"], "nodes": source["outputs"]}
        described["parameters"] = {
            item["name"]: {"node": item["node_id"], "input": item["input"]}
            for item in source["parameters"]
        }
    return web.json_response(described)


async def delete_workflow(request: web.Request) -> web.Response:
    """Forget a workflow with all its versions; requests that were accepted go on."""
    check_sender(request)
    await request.app[REGISTRAR].store.delete(request.match_info["name"])
    return web.Response(status=204)


def version_number(text: str) -> int:
    """Raises: BadRequest."""
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise BadRequest("A version is a whole number", text[:100])
    return int(text)
