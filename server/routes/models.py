"""GET /models, /models/{kind} and /embeddings. Source: spec comfyui-api/api.md, section 10."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ..app_keys import MODEL_PATHS
from ..catalog import embedding_names


async def get_models(request: web.Request) -> web.Response:
    """The kinds of model files."""
    return web.json_response(request.app[MODEL_PATHS].kinds())


async def get_models_of_kind(request: web.Request) -> web.Response:
    """Relative names of a kind's files, sorted; 404 without a body for an unknown kind."""
    model_paths = request.app[MODEL_PATHS]
    kind = request.match_info["kind"]
    if kind not in model_paths.kinds():
        return web.Response(status=404)
    return web.json_response(await asyncio.to_thread(model_paths.names, kind))


async def get_embeddings(request: web.Request) -> web.Response:
    """Names of embeddings, without suffix."""
    return web.json_response(await asyncio.to_thread(embedding_names, request.app[MODEL_PATHS]))
