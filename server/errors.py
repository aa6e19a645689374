"""Errors as answers: NodeloomError -> status and a body in ComfyUI's shape.

Source: spec comfyui-api/validation.md, section 1. Where ComfyUI answers 500 to bad input we answer
4xx in the same shape; `docs/differences.md` lists those cases.
"""

from __future__ import annotations

import json
from typing import Final

from aiohttp import web

from ..graph_import.comfy.problems import rejection_body
from ..graph_import.errors import (
    CompositionError,
    ImportRejected,
    InvocationRejected,
    ModelFileProblem,
    NodeloomError,
)
from ..graph_import.workflow_file import WorkflowFileProblem
from ..runtime.errors import AdmissionRejected
from .embedded import NoWorkflow
from .files import UnsafeName
from .workflows.records import RegistrationConflict, UnknownWorkflow
from .workflows.tracer import TraceFailed
from .workflows.user_files import UserCodeRefused


class BadRequest(NodeloomError):
    """A body or query that makes no sense; `type` is the word for programs."""

    code = "bad_request"

    def __init__(self, message: str, details: str = "", *, type_: str = "bad_request") -> None:
        super().__init__(message, text=details)
        self.type = type_
        self.text = details


class PageRefused(NodeloomError):
    """What any page of a browser can send unasked, where users' Python may come to run (403)."""

    code = "page_refused"


_STATUS: Final[tuple[tuple[type[NodeloomError], int], ...]] = (
    (ImportRejected, 400),
    (BadRequest, 400),
    (NoWorkflow, 400),
    (WorkflowFileProblem, 400),
    (UnsafeName, 400),
    (ModelFileProblem, 400),
    (CompositionError, 400),
    (InvocationRejected, 400),
    (TraceFailed, 400),
    (UserCodeRefused, 403),
    (PageRefused, 403),
    (UnknownWorkflow, 404),
    (RegistrationConflict, 409),
    (AdmissionRejected, 429),
)


def error_response(problem: NodeloomError) -> web.Response:
    """The answer to a request that raised `problem`; 500 where the fault is ours."""
    for kind, status in _STATUS:
        if isinstance(problem, kind):
            return web.json_response(_body(problem), status=status)
    return web.json_response(_body(problem), status=500)


def _body(problem: NodeloomError) -> dict[str, object]:
    if isinstance(problem, ImportRejected):
        return rejection_body(problem)
    type_ = problem.type if isinstance(problem, BadRequest) else problem.code
    details = problem.text if isinstance(problem, BadRequest) else ""
    error: dict[str, object] = {
        "type": type_,
        "message": problem.message,
        "details": details,
        "extra_info": {},
    }
    if not isinstance(problem, BadRequest) and problem.details:
        error["extra_info"] = json.loads(json.dumps(dict(problem.details), default=str))
    return {"error": error, "node_errors": {}}
