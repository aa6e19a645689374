"""Notices become the very frames that ComfyUI 0.8.0 sent."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from kit.recorded import entries
from nodeloom.runtime.ids import ClientId, ExecutorId, RequestId
from nodeloom.runtime.notices import (
    AnyNotice,
    DagNodeChanged,
    EndMarker,
    Failed,
    Interrupted,
    NodeExecuted,
    NodeExecuting,
    NodeProgress,
    NodeState,
    Progress,
    ProgressState,
    QueueChanged,
    Started,
    Succeeded,
)
from nodeloom.runtime.protocol import ErrorReport
from nodeloom.server.comfy_notices import (
    Audience,
    SocketFlags,
    audience,
    frames,
    running_node_frame,
    status_frame,
)

PLAIN = SocketFlags()
WITH_METADATA = SocketFlags(takes_preview_metadata=True)
OWNER = ClientId("owner")
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"


def notice_of(kind: str, data: dict[str, Any], client_id: ClientId | None) -> AnyNotice:
    """The notice that a recorded message tells of."""
    ids: dict[str, Any] = {
        "request_id": RequestId(data.get("prompt_id", "")),
        "client_id": client_id,
    }
    match kind:
        case "progress_state":
            nodes = tuple(
                NodeProgress(
                    node_id=node_id,
                    value=node["value"],
                    max_value=node["max"],
                    state=NodeState(node["state"]),
                )
                for node_id, node in data["nodes"].items()
            )
            return ProgressState(nodes=nodes, **ids)
        case "executing" if data["node"] is None:
            return EndMarker(**ids)
        case "executing":
            return NodeExecuting(node_id=data["node"], **ids)
        case "executed":
            return NodeExecuted(node_id=data["node"], ui=json.dumps(data["output"]), **ids)
        case "progress":
            value, largest = data["value"], data["max"]
            return Progress(
                node_id=data["node"], value=value, max_value=largest, preview=None, **ids
            )
        case "execution_success":
            return Succeeded(timestamp_ms=data["timestamp"], **ids)
        case "execution_interrupted":
            return Interrupted(
                node_id=data["node_id"],
                node_type=data["node_type"],
                executed=tuple(data["executed"]),
                timestamp_ms=data["timestamp"],
                **ids,
            )
        case _:
            raise AssertionError(kind)


def recorded_texts(name: str) -> list[dict[str, Any]]:
    return [entry["text"] for entry in entries(name) if "text" in entry]


def test_every_text_frame_of_a_run_is_byte_for_byte_the_recorded_one() -> None:
    told = 0
    for message in recorded_texts("frames_txt2img_previews"):
        kind, data = message["type"], message["data"]
        if kind in ("status", "execution_start", "execution_cached"):
            continue
        assert frames(notice_of(kind, data, OWNER), PLAIN) == [json.dumps(message)]
        told += 1
    assert told > 20


def test_the_start_is_told_as_start_and_cached() -> None:
    start, cached = (
        message
        for message in recorded_texts("frames_txt2img_previews")
        if message["type"] in ("execution_start", "execution_cached")
    )
    notice = Started(
        request_id=RequestId(start["data"]["prompt_id"]),
        client_id=OWNER,
        cached_nodes=(),
        timestamp_ms=start["data"]["timestamp"],
    )
    cached["data"]["timestamp"] = start["data"]["timestamp"]
    assert frames(notice, PLAIN) == [json.dumps(start), json.dumps(cached)]


def test_the_greeting_and_the_count_are_the_recorded_ones() -> None:
    greeting, first, *_ = recorded_texts("frames_txt2img_previews")
    assert status_frame(0, sid=greeting["data"]["sid"]) == json.dumps(greeting)
    assert frames(QueueChanged(queue_remaining=1), PLAIN) == [json.dumps(first)]
    assert running_node_frame("b") == '{"type": "executing", "data": {"node": "b"}}'


def test_an_error_is_told_with_the_recorded_fields() -> None:
    message = recorded_texts("frames_endings")[0]
    data = message["data"]
    report = ErrorReport(
        code="node_failed",
        exception_type=data["exception_type"],
        message=data["exception_message"].removesuffix("\n"),
        traceback=tuple(data["traceback"]),
        current_inputs=data["current_inputs"],
    )
    notice = Failed(
        request_id=RequestId(data["prompt_id"]),
        client_id=OWNER,
        node_id=data["node_id"],
        node_type=data["node_type"],
        executed=tuple(data["executed"]),
        error=report,
        timestamp_ms=data["timestamp"],
    )
    (frame,) = frames(notice, PLAIN)
    told = json.loads(frame)
    data["current_outputs"] = data["executed"]  # what ComfyUI's cache knew; we tell what has run
    assert told == message
    assert list(told["data"]) == list(data)


def test_an_interrupt_is_byte_for_byte_the_recorded_one() -> None:
    message = recorded_texts("frames_endings")[1]
    notice = notice_of(message["type"], message["data"], OWNER)
    assert frames(notice, PLAIN) == [json.dumps(message)]


def step(client_id: ClientId | None, request_id: str = "r") -> Progress:
    return Progress(
        request_id=RequestId(request_id),
        client_id=client_id,
        node_id="3",
        value=1,
        max_value=4,
        preview=JPEG,
    )


def test_a_plain_preview_comes_after_its_progress_with_the_recorded_header() -> None:
    recorded = next(e for e in entries("frames_txt2img_previews") if "binary_prefix" in e)
    progress, preview = frames(step(OWNER), PLAIN)
    assert isinstance(progress, str)
    assert isinstance(preview, bytes)
    assert preview[:8] == base64.b64decode(recorded["binary_prefix"])[:8]
    assert preview[8:] == JPEG


def test_a_preview_with_metadata_comes_before_its_progress_with_the_recorded_header() -> None:
    kinds = entries("frames_previews_with_metadata")
    first = next(index for index, entry in enumerate(kinds) if "binary_prefix" in entry)
    prompt_id = kinds[first + 1]["text"]["data"]["prompt_id"]
    preview, progress = frames(step(OWNER, prompt_id), WITH_METADATA)
    assert isinstance(preview, bytes)
    assert json.loads(progress)["type"] == "progress"
    recorded = base64.b64decode(kinds[first]["binary_prefix"])
    assert preview[: len(recorded)] == recorded
    (length,) = struct.unpack(">I", preview[4:8])
    assert json.loads(preview[8 : 8 + length])["image_type"] == "image/jpeg"
    assert preview[8 + length :] == JPEG


def test_without_an_owner_everybody_gets_plain_previews_whatever_their_flags() -> None:
    progress, preview = frames(step(None), WITH_METADATA)
    assert json.loads(progress)["type"] == "progress"
    assert isinstance(preview, bytes)
    assert preview[:4] == b"\x00\x00\x00\x01"


def test_without_an_owner_the_recorded_kinds_go_to_everybody_and_no_others() -> None:
    heard = {message["type"] for message in recorded_texts("frames_no_client_id")}
    assert heard == {"status", "progress_state", "progress", "execution_interrupted"}
    ids: dict[str, Any] = {"request_id": RequestId("r"), "client_id": None}
    where: dict[str, Any] = {"node_id": "1", "node_type": "T", "executed": (), "timestamp_ms": 1}
    report = ErrorReport(code="c", exception_type="E", message="m", traceback=(), current_inputs={})
    to_all = [ProgressState(nodes=(), **ids), step(None), Interrupted(**ids, **where)]
    to_nobody = [
        Started(cached_nodes=(), timestamp_ms=1, **ids),
        NodeExecuting(node_id="1", **ids),
        NodeExecuted(node_id="1", ui=None, **ids),
        Succeeded(timestamp_ms=1, **ids),
        Failed(error=report, **ids, **where),
        EndMarker(**ids),
    ]
    assert {audience(notice) for notice in to_all} == {Audience.EVERYBODY}
    assert {audience(notice) for notice in to_nobody} == {Audience.NOBODY}


def test_dag_nodes_are_told_to_sockets_that_asked_only() -> None:
    notice = DagNodeChanged(
        request_id=RequestId("r"),
        client_id=OWNER,
        node_id="3/eval-0",
        state="running",
        executor=ExecutorId("cpu0"),
    )
    assert frames(notice, PLAIN) == []
    (frame,) = frames(notice, SocketFlags(takes_dag_nodes=True))
    assert json.loads(frame) == {
        "type": "nodeloom_node",
        "data": {"prompt_id": "r", "node": "3/eval-0", "state": "running", "executor": "cpu0"},
    }


@pytest.mark.parametrize("ui", [None, '{"text": ["gr\\u00fc\\u00dfe"]}'])
def test_text_frames_begin_with_their_type(ui: str | None) -> None:
    notice = NodeExecuted(request_id=RequestId("r"), client_id=OWNER, node_id="1", ui=ui)
    (frame,) = frames(notice, PLAIN)
    assert isinstance(frame, str)
    assert frame.startswith('{"type":')
    assert frame.isascii()
