"""GET and POST /prompt: bytes -> validated prompt graph -> Graph -> accepted request.

Source: spec comfyui-api/api.md, section 2, and validation.md, section 1.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import uuid
from typing import Any, Final

import msgspec
from aiohttp import web

from ...graph_import.comfy.api_format import prompt_of
from ...graph_import.comfy.problems import node_errors
from ...graph_import.comfy.validate import Validated
from ...graph_import.errors import ImportRejected
from ...graph_import.ir import Graph
from ...graph_import.nodes.user_model import PREFIX
from ...runtime.config import PreviewMethod
from ...runtime.coordinator.records import Submission
from ...runtime.coordinator.service import Coordinator
from ...runtime.errors import AdmissionRejected
from ...runtime.ids import ClientId, RequestId
from ..app_keys import COORDINATOR, IMPORTER, SETTINGS
from ..errors import BadRequest
from ..json_body import check_storable
from ..middleware import check_sender
from ..prompt_importer import PromptImporter
from .dry_run import plan_json, wants_dry_run
from .opened import notes_json, open_body

MAX_ID_CHARACTERS: Final = 256
OURS: Final = "nodeloom"  # in a request's extra_data: what it was invoked as; never the client's
_DROPPED: Final = ("auth_token_comfy_org", "api_key_comfy_org", OURS)


class PromptBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST /prompt, checked; `number` None means that the counter decides."""

    prompt: object
    request_id: RequestId
    client_id: ClientId | None
    number: float | None
    is_front: bool
    extra_data: dict[str, object]
    targets: list[str] | None


async def get_prompt(request: web.Request) -> web.Response:
    """How many requests wait or run."""
    remaining = request.app[COORDINATOR].queue_remaining()
    return web.json_response({"exec_info": {"queue_remaining": remaining}})


async def post_prompt(request: web.Request) -> web.Response:
    """Accept a prompt: 200 means that it is stored and will be run or reported failed.

    It may be a workflow in UI format or a file; with `?dry_run=1` it is only planned.
    """
    given, notes, unknown = await open_body(request)
    body = read_body(given)
    if _declares_models(body.prompt):
        check_sender(request)
    coordinator, is_dry = request.app[COORDINATOR], wants_dry_run(request.query)
    number = 0.0 if is_dry else _number_of(body, coordinator)
    try:
        validated, graph = await asyncio.to_thread(_lower, body, request.app[IMPORTER])
    except ImportRejected as problem:
        problem.text = "\n".join(filter(None, (problem.text, unknown)))
        raise
    errors = node_errors(validated.problems, validated.dependent_outputs)
    if is_dry:
        plan = plan_json(graph, coordinator)
        return web.json_response({"plan": plan, "node_errors": errors, "notes": notes_json(notes)})
    prompt, method = validated.prompt.to_json(), request.app[SETTINGS].preview_method
    submission = submission_of(body, prompt, validated.roots, number, method)
    try:
        await coordinator.submit(submission, graph)
    except AdmissionRejected as problem:
        if "prompt_id" in problem.details:
            raise BadRequest(problem.message, type_="duplicate_prompt_id") from problem
        raise
    return web.json_response(
        {
            "prompt_id": submission.request_id,
            "number": number,
            "node_errors": errors,
            **({"notes": notes_json(notes)} if notes else {}),
        }
    )


def _number_of(body: PromptBody, coordinator: Coordinator) -> float | int:
    """The request's place in the order: its own word, else the counter's."""
    if body.number is not None:
        return body.number
    counted = coordinator.next_number()
    return -counted if body.is_front else counted


def _declares_models(prompt: object) -> bool:
    """Whether it has nodes that run models of users' own."""
    nodes = prompt.values() if isinstance(prompt, dict) else ()
    types = (node.get("class_type") for node in nodes if isinstance(node, dict))
    return any(isinstance(type_, str) and type_.startswith(PREFIX) for type_ in types)


def _lower(body: PromptBody, importer: PromptImporter) -> tuple[Validated, Graph]:
    """Validate and lower, on a thread: it reads files. Raises: ImportRejected, BadRequest."""
    importer.passes.check(body.extra_data)
    validated = importer.validate(body.prompt, body.targets)
    check_storable(validated.prompt.to_json())  # conversion makes numbers of text: "nan"
    return validated, importer.lower_validated(validated, body.extra_data)


def submission_of(
    body: PromptBody,
    prompt: dict[str, Any],
    roots: tuple[str, ...],
    number: float | int,
    default: PreviewMethod,
) -> Submission:
    """The request to accept: a validated prompt, and what else the client's body says."""
    hidden = {"prompt": json.dumps(prompt)}
    if body.extra_data.get("extra_pnginfo") is not None:
        hidden["extra_pnginfo"] = json.dumps(body.extra_data["extra_pnginfo"])
    method = preview_method(body.extra_data, default)
    hidden["preview_method"] = method.value
    created = {"create_time": time.time_ns() // 1_000_000}
    return Submission(
        request_id=body.request_id,
        client_id=body.client_id,
        number=number,
        prompt=prompt,
        extra_data=body.extra_data | created,
        roots=roots,
        hidden=hidden,
    )


def preview_method(extra_data: dict[str, object], default: PreviewMethod) -> PreviewMethod:
    """The method for this prompt: its own word, else (`default`, anything unknown) the server's."""
    given = extra_data.get("preview_method")
    if isinstance(given, str) and given in list(PreviewMethod):
        return PreviewMethod(given)
    return default


def read_body(given: object) -> PromptBody:
    """Check everything but the graph. Raises: ImportRejected: no prompt. BadRequest."""
    prompt = prompt_of(given)
    if not isinstance(given, dict):
        raise BadRequest("The body must be a JSON object", type_="invalid_json")
    extra_data = _extra_data(given)
    client_id = extra_data.get("client_id")
    if client_id is not None and not isinstance(client_id, str):
        raise BadRequest("`client_id` must be text")
    return PromptBody(
        prompt=prompt,
        request_id=_request_id(given),
        client_id=None if client_id is None else ClientId(_bounded(client_id, "client_id")),
        number=_number(given),
        is_front=bool(given.get("front")),
        extra_data=extra_data,
        targets=_targets(given),
    )


def _extra_data(given: dict[str, object]) -> dict[str, object]:
    """The client's extra data without its secrets and what is ours, with its client id."""
    extra_data = given.get("extra_data", {})
    if not isinstance(extra_data, dict):
        raise BadRequest("`extra_data` must be an object")
    kept = {name: value for name, value in extra_data.items() if name not in _DROPPED}
    if "client_id" in given:
        kept["client_id"] = given["client_id"]
    if not isinstance(kept.get("extra_pnginfo", {}), dict | None):
        raise BadRequest("`extra_pnginfo` must be an object")
    return kept


def _request_id(given: dict[str, object]) -> RequestId:
    """The chosen id as text, else a new one."""
    if "prompt_id" not in given:
        return RequestId(str(uuid.uuid4()))
    chosen = given["prompt_id"]
    if isinstance(chosen, dict | list):
        raise BadRequest("`prompt_id` must be text")
    return RequestId(_bounded(str(chosen), "prompt_id"))


def _bounded(text: str, name: str) -> str:
    if len(text) > MAX_ID_CHARACTERS:
        raise BadRequest(f"`{name}` may have {MAX_ID_CHARACTERS} characters at most")
    return text


def _number(given: dict[str, object]) -> float | None:
    """The chosen priority: a number or numeric text, finite."""
    if "number" not in given:
        return None
    chosen = given["number"]
    try:
        if not isinstance(chosen, int | float | str):
            raise ValueError("neither number nor text")
        number = float(chosen)
    except ValueError as problem:
        raise BadRequest("`number` must be a number", str(problem)[:200]) from problem
    if not math.isfinite(number):
        raise BadRequest("`number` must be finite")
    return number


def _targets(given: dict[str, object]) -> list[str] | None:
    targets = given.get("partial_execution_targets")
    if targets is None:
        return None
    if not isinstance(targets, list) or not all(isinstance(item, str) for item in targets):
        raise BadRequest("`partial_execution_targets` must be a list of node ids")
    return targets
