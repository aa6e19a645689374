"""GET and POST /history, GET /history/{prompt_id}. Source: spec comfyui-api/api.md, section 4."""

from __future__ import annotations

from aiohttp import web

from ...runtime.coordinator.records import HistoryEntry
from ...runtime.ids import RequestId
from ..app_keys import COORDINATOR
from ..errors import BadRequest
from ..json_body import read_object
from .queue import ids_to_delete, queue_item

_LARGEST = 2**31


async def get_history(request: web.Request) -> web.Response:
    """All entries, oldest first; `max_items` and `offset` as ComfyUI has them."""
    entries = await request.app[COORDINATOR].history(
        max_items=_integer(request, "max_items"), offset=_integer(request, "offset")
    )
    return web.json_response(
        {entry.submission.request_id: history_json(entry) for entry in entries}
    )


async def get_history_entry(request: web.Request) -> web.Response:
    """One entry under its id, or an empty object while the request is unknown or unfinished."""
    request_id = RequestId(request.match_info["prompt_id"])
    entry = await request.app[COORDINATOR].history_entry(request_id)
    return web.json_response({} if entry is None else {request_id: history_json(entry)})


async def post_history(request: web.Request) -> web.Response:
    """Forget all entries (`clear`), or those named in `delete`."""
    body = await read_object(request)
    coordinator = request.app[COORDINATOR]
    named = ids_to_delete(body)
    if body.get("clear"):
        await coordinator.delete_history(None)
    if named:
        await coordinator.delete_history(named)
    return web.Response()


def history_json(entry: HistoryEntry) -> dict[str, object]:
    """An entry in ComfyUI's shape; one that used LoRAs says under `nodeloom` what they changed."""
    ours = {"nodeloom": {"patches": entry.patches}} if entry.patches else {}
    return {
        "prompt": queue_item(entry.submission),
        "outputs": entry.outputs,
        "status": {
            "status_str": entry.status_str,
            "completed": entry.completed,
            "messages": [[name, data] for name, data in entry.messages],
        },
        "meta": entry.meta,
        **ours,
    }


def _integer(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    try:
        return min(max(int(text), -1), _LARGEST)
    except ValueError as problem:
        raise BadRequest(f"`{name}` must be an integer", text[:100]) from problem
