"""GET and POST /queue. Source: spec comfyui-api/api.md, section 3."""

from __future__ import annotations

from aiohttp import web

from ...runtime.coordinator.records import Submission
from ...runtime.ids import RequestId
from ..app_keys import COORDINATOR
from ..errors import BadRequest
from ..json_body import read_object


def queue_item(submission: Submission) -> list[object]:
    """ComfyUI's array of five."""
    return [
        submission.number,
        submission.request_id,
        submission.prompt,
        submission.extra_data,
        list(submission.roots),
    ]


async def get_queue(request: web.Request) -> web.Response:
    """What runs and what waits."""
    view = request.app[COORDINATOR].queue()
    return web.json_response(
        {
            "queue_running": [queue_item(item) for item in view.running],
            "queue_pending": [queue_item(item) for item in view.pending],
        }
    )


async def post_queue(request: web.Request) -> web.Response:
    """Drop all waiting requests (`clear`), or those named in `delete`; running ones go on."""
    body = await read_object(request)
    coordinator = request.app[COORDINATOR]
    named = ids_to_delete(body)
    if body.get("clear"):
        await coordinator.clear_pending()
    if named:
        await coordinator.delete_pending(named)
    return web.Response()


def ids_to_delete(body: dict[str, object]) -> list[RequestId]:
    """The body's `delete`: a list of ids. Raises: BadRequest."""
    given = body.get("delete")
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise BadRequest("`delete` must be a list of prompt ids")
    return [RequestId(item) for item in given]
