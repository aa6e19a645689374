"""Notices in ComfyUI's words: names, JSON and binary layouts of its websocket.

The only place that knows those names. Pure: a notice in, frames out.
Source: spec comfyui-api/api.md, sections 7 and 8; clients.md, section 4.
"""

from __future__ import annotations

import json
import struct
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from ..runtime.notices import (
    AnyNotice,
    DagNodeChanged,
    EndMarker,
    Failed,
    Interrupted,
    NodeExecuted,
    NodeExecuting,
    Progress,
    ProgressState,
    QueueChanged,
    Started,
    Succeeded,
)

Frame = str | bytes

_EVENT_PREVIEW: Final = 1
_EVENT_PREVIEW_WITH_METADATA: Final = 4
_FORMAT_JPEG: Final = 1


class Audience(StrEnum):
    """Who hears a notice."""

    EVERYBODY = "everybody"
    OWNER = "owner"
    NOBODY = "nobody"


class SocketFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What a socket said of itself in its feature flags."""

    takes_preview_metadata: bool = False
    takes_dag_nodes: bool = False


def text_frame(kind: str, data: dict[str, object]) -> str:
    """A text frame. `type` comes first and nothing before it: clients test the first bytes."""
    return json.dumps({"type": kind, "data": data})


def status_frame(queue_remaining: int, sid: str | None = None) -> str:
    """How many requests wait or run; the greeting of a socket has its id too."""
    data: dict[str, object] = {"status": {"exec_info": {"queue_remaining": queue_remaining}}}
    if sid is not None:
        data["sid"] = sid
    return text_frame("status", data)


def running_node_frame(node_id: str) -> str:
    """What a socket that comes back during a run hears: `executing` without a prompt_id."""
    return text_frame("executing", {"node": node_id})


def audience(notice: AnyNotice) -> Audience:
    """Who hears `notice`: most are for the owner, some go to all where there is no owner."""
    if isinstance(notice, QueueChanged | DagNodeChanged):
        return Audience.EVERYBODY
    if notice.client_id is not None:
        return Audience.OWNER
    if isinstance(notice, Progress | ProgressState | Interrupted):
        return Audience.EVERYBODY
    return Audience.NOBODY


def frames(notice: AnyNotice, flags: SocketFlags) -> list[Frame]:
    """The frames of `notice` for a socket with these flags, in order; perhaps none."""
    if isinstance(notice, Progress):
        return _progress_frames(notice, flags)
    if isinstance(notice, DagNodeChanged):
        return [_dag_node_frame(notice)] if flags.takes_dag_nodes else []
    return [text_frame(kind, data) for kind, data in _texts(notice)]


def _texts(
    notice: QueueChanged
    | Started
    | ProgressState
    | NodeExecuting
    | NodeExecuted
    | Succeeded
    | Failed
    | Interrupted
    | EndMarker,
) -> list[tuple[str, dict[str, object]]]:
    match notice:
        case QueueChanged():
            return [
                ("status", {"status": {"exec_info": {"queue_remaining": notice.queue_remaining}}})
            ]
        case Started():
            head: dict[str, object] = {"prompt_id": notice.request_id}
            stamp: dict[str, object] = {"timestamp": notice.timestamp_ms}
            cached: dict[str, object] = {"nodes": list(notice.cached_nodes)}
            return [("execution_start", head | stamp), ("execution_cached", cached | head | stamp)]
        case ProgressState():
            return [("progress_state", _progress_state(notice))]
        case NodeExecuting():
            return [("executing", _node(notice.node_id) | {"prompt_id": notice.request_id})]
        case NodeExecuted():
            output = None if notice.ui is None else json.loads(notice.ui)
            told = _node(notice.node_id) | {"output": output, "prompt_id": notice.request_id}
            return [("executed", told)]
        case Succeeded():
            ended = {"prompt_id": notice.request_id, "timestamp": notice.timestamp_ms}
            return [("execution_success", ended)]
        case Failed():
            return [("execution_error", _error(notice))]
        case Interrupted():
            return [("execution_interrupted", _where(notice) | {"timestamp": notice.timestamp_ms})]
        case EndMarker():
            return [("executing", {"node": None, "prompt_id": notice.request_id})]
        case _:
            assert_never(notice)


def _node(node_id: str) -> dict[str, object]:
    return {"node": node_id, "display_node": node_id}


def _where(notice: Failed | Interrupted) -> dict[str, object]:
    return {
        "prompt_id": notice.request_id,
        "node_id": notice.node_id,
        "node_type": notice.node_type,
        "executed": list(notice.executed),
    }


def _error(notice: Failed) -> dict[str, object]:
    error = notice.error
    return _where(notice) | {
        "exception_message": error.message
        if error.message.endswith("\n")
        else error.message + "\n",
        "exception_type": error.exception_type,
        "traceback": list(error.traceback),
        "current_inputs": error.current_inputs,
        "current_outputs": list(notice.executed),
        "timestamp": notice.timestamp_ms,
    }


def _progress_state(notice: ProgressState) -> dict[str, object]:
    nodes: dict[str, object] = {
        node.node_id: {
            "value": node.value,
            "max": node.max_value,
            "state": node.state.value,
            "node_id": node.node_id,
            "prompt_id": notice.request_id,
            "display_node_id": node.node_id,
            "parent_node_id": None,
            "real_node_id": node.node_id,
        }
        for node in notice.nodes
    }
    return {"prompt_id": notice.request_id, "nodes": nodes}


def _progress_frames(notice: Progress, flags: SocketFlags) -> list[Frame]:
    """A step. Event 4 stands before its `progress`, event 1 after it; spec api.md, section 7.2."""
    told = text_frame(
        "progress",
        {
            "value": notice.value,
            "max": notice.max_value,
            "prompt_id": notice.request_id,
            "node": notice.node_id,
        },
    )
    if notice.preview is None:
        return [told]
    if flags.takes_preview_metadata and notice.client_id is not None:
        return [_preview_with_metadata(notice, notice.preview), told]
    return [told, struct.pack(">II", _EVENT_PREVIEW, _FORMAT_JPEG) + notice.preview]


def _preview_with_metadata(notice: Progress, preview: bytes) -> bytes:
    metadata = json.dumps(
        {
            "node_id": notice.node_id,
            "prompt_id": notice.request_id,
            "display_node_id": notice.node_id,
            "parent_node_id": None,
            "real_node_id": notice.node_id,
            "image_type": "image/jpeg",
        }
    ).encode("utf-8")
    return struct.pack(">II", _EVENT_PREVIEW_WITH_METADATA, len(metadata)) + metadata + preview


def _dag_node_frame(notice: DagNodeChanged) -> str:
    data: dict[str, object] = {
        "prompt_id": notice.request_id,
        "node": notice.node_id,
        "state": notice.state,
        "executor": notice.executor,
    }
    return text_frame("nodeloom_node", data)
