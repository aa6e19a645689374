"""GET /object_info[/{class}]. The document is graph_import's. Source: api.md, section 10."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ..app_keys import IMPORTER


async def get_object_info(request: web.Request) -> web.Response:
    """Every node class, with the files of the moment in its combos."""
    return web.json_response(await asyncio.to_thread(request.app[IMPORTER].object_info))


async def get_object_info_of_class(request: web.Request) -> web.Response:
    """One node class under its name; an empty object if it is unknown."""
    class_type = request.match_info["class_type"]
    return web.json_response(await asyncio.to_thread(request.app[IMPORTER].object_info, class_type))
