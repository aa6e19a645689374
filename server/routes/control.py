"""POST /interrupt and /free. Source: spec comfyui-api/api.md, section 6."""

from __future__ import annotations

from aiohttp import web

from ...runtime.ids import RequestId
from ..app_keys import COORDINATOR
from ..errors import BadRequest
from ..json_body import parse, read_object


async def post_interrupt(request: web.Request) -> web.Response:
    """Stop what runs, or only the request named in `prompt_id`; a body is optional."""
    try:
        body = parse(await request.read())
    except BadRequest:  # ComfyUI takes an unreadable body for none
        body = {}
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object")
    request_id = body.get("prompt_id")
    if isinstance(request_id, dict | list):
        raise BadRequest("`prompt_id` must be text")
    wanted = None if request_id is None else RequestId(str(request_id))
    await request.app[COORDINATOR].interrupt(wanted)
    return web.Response()


async def post_free(request: web.Request) -> web.Response:
    """Unload models, and with `free_memory` forget results too (none are kept yet)."""
    body = await read_object(request)
    if body.get("unload_models") or body.get("free_memory"):
        await request.app[COORDINATOR].free()
    return web.Response()
