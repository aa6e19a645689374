"""POST /nodeloom/workflows/{name}/invoke, and what became of a request by the names of its outputs.

An invocation is a request like one of POST /prompt: same queue, numbers, events, history; on disk
before the answer is sent. Nothing about it changes when its workflow is registered anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from ...graph_import.ir import Graph
from ...graph_import.passes.options import PassOptions
from ...runtime.coordinator.records import HistoryEntry, Submission
from ...runtime.errors import AdmissionRejected
from ...runtime.ids import RequestId
from ..app_keys import COORDINATOR, IMPORTER, REGISTRAR, REQUEST_WATCH, SETTINGS
from ..errors import BadRequest
from ..json_body import read_object
from ..middleware import check_sender
from ..prompt_importer import PromptImporter
from ..workflows.binding import Bound
from ..workflows.records import RegistrationConflict
from .prompt import OURS, PromptBody, read_body, submission_of

MAX_WAIT_S: Final = 3600.0
MAX_BODY_BYTES: Final = 1 << 20
MAX_INPUTS: Final = 1024  # that are looked at at all
MAX_VERSION: Final = 10**18 - 1
_OF_PROMPT: Final = frozenset({"client_id", "prompt_id", "number", "front", "extra_data"})


class Invoke(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body, but for what POST /prompt has too."""

    inputs: Annotated[dict[str, Any], msgspec.Meta(max_length=MAX_INPUTS)] = msgspec.field(
        default_factory=dict
    )
    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)] | None = None
    wait: bool = False
    timeout_s: float | None = None


class InvokedAs(msgspec.Struct, frozen=True, kw_only=True):
    """Of which workflow a request is an invocation; `nodes` are its output nodes by name."""

    workflow: str
    version: int
    nodes: dict[str, str]


async def post_invoke(request: web.Request) -> web.Response:
    """Accept an invocation; with `wait`, answer when it has ended (202 if that takes too long)."""
    check_sender(request)
    given, body = read_invoke(await read_object(request, MAX_BODY_BYTES))
    request.app[IMPORTER].passes.check(body.extra_data)
    registrar, coordinator = request.app[REGISTRAR], request.app[COORDINATOR]
    version = await registrar.store.version(request.match_info["name"], given.version)
    bound = await registrar.bind(version, given.inputs)
    number = body.number
    if number is None:
        counted = coordinator.next_number()
        number = -counted if body.is_front else counted
    as_ = InvokedAs(workflow=version.name, version=version.version, nodes=bound.outputs)
    body = msgspec.structs.replace(
        body, extra_data={**body.extra_data, OURS: msgspec.to_builtins(as_)}
    )
    submission = submission_of(
        body, bound.prompt, bound.roots, number, request.app[SETTINGS].preview_method
    )
    graph = await _graph(request.app[IMPORTER], bound, submission.extra_data)
    try:
        await coordinator.submit(submission, graph)
    except AdmissionRejected as problem:
        if "prompt_id" in problem.details:
            raise RegistrationConflict(problem.message, **problem.details) from problem
        raise
    if given.wait:
        return await _answer_when_ended(request, submission.request_id, given.timeout_s)
    return web.json_response(_live(submission, "waiting"))


async def _graph(importer: PromptImporter, bound: Bound, extra_data: dict[str, Any]) -> Graph:
    """What to run: the bound graph, or one with the passes that the client opted in to."""
    if importer.passes.options(extra_data) == PassOptions():
        return bound.graph
    return await asyncio.to_thread(importer.lower, bound.prompt, bound.roots, extra_data)


async def get_request(request: web.Request) -> web.Response:
    """What became of a request: state, and its outputs' files by name; 404 if it is unknown."""
    request_id = RequestId(request.match_info["request_id"])
    told = await _told(request.app, request_id)
    return web.json_response(told, status=404 if told["status"] == "unknown" else 200)


def read_invoke(given: Mapping[str, Any]) -> tuple[Invoke, PromptBody]:
    """The body in two parts. Raises: BadRequest."""
    own = {name: value for name, value in given.items() if name not in _OF_PROMPT}
    try:
        invoke = msgspec.convert(own, type=Invoke)
    except msgspec.ValidationError as problem:
        raise BadRequest("This is no invocation", str(problem)) from problem
    if invoke.timeout_s is not None and not 0 <= invoke.timeout_s <= MAX_WAIT_S:
        raise BadRequest("`timeout_s` must be from 0 to 3600")
    shared = {name: value for name, value in given.items() if name in _OF_PROMPT}
    return invoke, read_body({**shared, "prompt": {}})


async def _answer_when_ended(
    request: web.Request, request_id: RequestId, timeout_s: float | None
) -> web.Response:
    """A client that leaves meanwhile changes nothing for its request."""
    coordinator = request.app[COORDINATOR]
    limit_s = MAX_WAIT_S if timeout_s is None else timeout_s
    try:
        async with asyncio.timeout(limit_s):
            watch = request.app[REQUEST_WATCH]
            await watch.ended(request_id, lambda: coordinator.is_live(request_id))
    except TimeoutError:
        told = await _told(request.app, request_id)
        return web.json_response(told, status=202 if "outputs" not in told else 200)
    return web.json_response(await _told(request.app, request_id))


async def _told(app: web.Application, request_id: RequestId) -> dict[str, Any]:
    queue = app[COORDINATOR].queue()
    for status, submissions in (("running", queue.running), ("waiting", queue.pending)):
        for submission in submissions:
            if submission.request_id == request_id:
                return _live(submission, status)
    entry = await app[COORDINATOR].history_entry(request_id)
    if entry is None:  # taken out of the queue, or of the history
        return {"prompt_id": request_id, "status": "unknown"}
    return _ended(entry)


def _live(submission: Submission, status: str) -> dict[str, Any]:
    return {
        "prompt_id": submission.request_id,
        "number": submission.number,
        "status": status,
        **_invoked_as(submission),
    }


def _ended(entry: HistoryEntry) -> dict[str, Any]:
    messages = dict(entry.messages)
    status, error = "success" if entry.completed else "error", messages.get("execution_error")
    if "execution_interrupted" in messages:
        status = "interrupted"
    told = _live(entry.submission, status)
    nodes = told.get("nodes") or {node_id: node_id for node_id in entry.submission.roots}
    told["outputs"] = {
        name: _files(entry.outputs[node_id])
        for name, node_id in nodes.items()
        if node_id in entry.outputs
    }
    return told if error is None else {**told, "error": error}


def _invoked_as(submission: Submission) -> dict[str, Any]:
    """workflow, version and nodes; nothing for a prompt, which can't pose as an invocation."""
    try:
        invoked = msgspec.convert(submission.extra_data.get(OURS), type=InvokedAs)
    except msgspec.ValidationError:
        return {}
    fields: dict[str, Any] = msgspec.to_builtins(invoked)
    return fields


def _files(ui: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The files that a node saved, and where GET /view has them."""
    files = [item for item in ui.get("images", ()) if isinstance(item, dict)]
    return [{**file, "url": f"/view?{urlencode(file)}"} for file in files]
