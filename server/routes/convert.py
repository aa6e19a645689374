"""POST /nodeloom/convert: any workflow file -> the prompt that it stands for, and notes."""

from __future__ import annotations

from aiohttp import web

from .opened import notes_json, open_file


async def post_convert(request: web.Request) -> web.Response:
    """The body is the file itself, or a form with it; nothing is run."""
    opened = await open_file(request)
    return web.json_response(
        {
            "prompt": opened.prompt,
            "workflow": opened.workflow,
            "notes": notes_json(opened.notes),
        }
    )
