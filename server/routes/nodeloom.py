"""Our own surface for the page and the operator: a request's DAG, the executors."""

from __future__ import annotations

import msgspec
from aiohttp import web

from ...runtime.ids import RequestId
from ..app_keys import COORDINATOR


async def get_request_graph(request: web.Request) -> web.Response:
    """GET /nodeloom/requests/{id}/graph: nodes with op, model, edges, state, executor.

    404 if it is unknown or ended long ago.
    """
    graph = request.app[COORDINATOR].request_graph(RequestId(request.match_info["request_id"]))
    if graph is None:
        error = {"error": {"type": "unknown_request", "message": "No live request has this id"}}
        return web.json_response(error, status=404)
    return web.json_response(msgspec.to_builtins(graph))


async def get_executors(request: web.Request) -> web.Response:
    """GET /nodeloom/executors: processes, devices, what is resident, what runs."""
    return web.json_response(msgspec.to_builtins(request.app[COORDINATOR].executors()))
