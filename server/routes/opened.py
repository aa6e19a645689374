"""Bodies that bring a workflow: JSON with a prompt in either format, or a file as multipart."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.web_request import FileField

from ...graph_import.workflow_file import NodeTable, Note
from ..any_workflow import Opened, is_ui_format, open_bytes, open_document
from ..app_keys import IMPORTER
from ..embedded import is_picture
from ..errors import BadRequest
from ..json_body import check_count, check_storable, check_text, parse
from ..prompt_importer import PromptImporter

FILE_FIELDS: Final = ("file", "image", "workflow")
_TEXT_FIELDS: Final = ("client_id", "prompt_id", "front", "number")

Body = dict[str, Any]


async def open_body(request: web.Request) -> tuple[object, tuple[Note, ...], str]:
    """The body of a POST /prompt, its prompt in API format.

    Returns: the body, notes on the file, and what to say of unknown classes.
    Raises: BadRequest, NoWorkflow, WorkflowFileProblem.
    """
    importer = request.app[IMPORTER]
    if request.content_type == "multipart/form-data":
        data, body = await _form(request)
        opened = await asyncio.to_thread(_open, data, importer)
    else:
        given = parse(await request.read())
        if not isinstance(given, dict) or not is_ui_format(given.get("prompt")):
            return given, (), ""
        body = given
        opened = await asyncio.to_thread(open_document, given["prompt"], _table(importer))
    return _with(body, opened), opened.notes, opened.explained


async def open_file(request: web.Request) -> Opened:
    """The workflow in a body that is a file, or a form with one.

    Raises: BadRequest, NoWorkflow, WorkflowFileProblem.
    """
    if request.content_type == "multipart/form-data":
        data, _ = await _form(request)
    else:
        data = await request.read()
    return await asyncio.to_thread(_open, data, request.app[IMPORTER])


def notes_json(notes: tuple[Note, ...]) -> list[object]:
    """Notes as clients get them."""
    return [msgspec.to_builtins(note) for note in notes]


def _open(data: bytes, importer: PromptImporter) -> Opened:
    """The workflow in a file that was sent; what is in it can be stored and sent again."""
    if not is_picture(data):
        check_count(data)
    opened = open_bytes(data, _table(importer))
    for document in (opened.prompt, opened.workflow):
        check_storable(document)
        check_text(document)
    return opened


def _with(body: Body, opened: Opened) -> Body:
    """The body with the prompt; pictures are to carry the workflow, if it says nothing else."""
    check_storable(opened.prompt)
    extra = body.get("extra_data", {})
    if opened.workflow is not None and isinstance(extra, dict):
        given = extra.get("extra_pnginfo")
        pnginfo = given if isinstance(given, dict) else {}
        extra = extra | {"extra_pnginfo": {"workflow": opened.workflow, **pnginfo}}
    return body | {"prompt": opened.prompt, "extra_data": extra}


async def _form(request: web.Request) -> tuple[bytes, Body]:
    """The file of a form, and its fields as those of a JSON body. Raises: BadRequest."""
    try:
        form = await request.post()
    except ValueError as problem:  # a broken form
        raise BadRequest("The form can't be read", str(problem)[:200]) from problem
    data: bytes | None = None
    for name in FILE_FIELDS:
        field = form.get(name)
        if isinstance(field, FileField):
            data = field.file.read()
        elif isinstance(field, str):
            data = field.encode("utf-8", "surrogateescape")
        if data is not None:
            break
    if data is None:
        raise BadRequest(f"The form has no file; it is a field {' or '.join(FILE_FIELDS)}")
    texts = {name: form[name] for name in _TEXT_FIELDS if isinstance(form.get(name), str)}
    body: Body = {name: text for name, text in texts.items() if name != "front"}
    body["front"] = texts.get("front") in ("true", "1")
    extra = form.get("extra_data")
    if isinstance(extra, str):
        body["extra_data"] = parse(extra.encode("utf-8", "surrogateescape"))
    return data, body


def _table(importer: PromptImporter) -> Any:
    return lambda: NodeTable(importer.object_info())
