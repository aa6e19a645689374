"""How a request ended, in the words of ComfyUI's history. The websocket says the same words.

Source: spec comfyui-api/api.md, sections 4 and 8.5; pure functions.
"""

from __future__ import annotations

from ..notices import Failed, Interrupted, Succeeded
from .records import HistoryEntry, Json
from .story import Story

LastWord = Succeeded | Failed | Interrupted


def history_entry(
    story: Story, start_ms: int, last_word: LastWord, patches: list[Json]
) -> HistoryEntry:
    """The entry of an ended request; `patches`: what its LoRAs changed."""
    request_id = story.submission.request_id
    start: Json = {"prompt_id": request_id, "timestamp": start_ms}
    cached: Json = {"nodes": [], "prompt_id": request_id, "timestamp": start_ms}
    completed = isinstance(last_word, Succeeded)
    return HistoryEntry(
        submission=story.submission,
        outputs=dict(story.outputs),
        status_str="success" if completed else "error",
        completed=completed,
        messages=[
            ("execution_start", start),
            ("execution_cached", cached),
            (last_word_name(last_word), last_word_data(last_word)),
        ],
        meta={
            node_id: {
                "node_id": node_id,
                "display_node": node_id,
                "parent_node": None,
                "real_node_id": node_id,
            }
            for node_id in story.outputs
        },
        patches=patches,
    )


def last_word_name(last_word: LastWord) -> str:
    """The message's type."""
    match last_word:
        case Succeeded():
            return "execution_success"
        case Failed():
            return "execution_error"
        case Interrupted():
            return "execution_interrupted"


def last_word_data(last_word: LastWord) -> Json:
    """The message's data."""
    match last_word:
        case Succeeded():
            return {"prompt_id": last_word.request_id, "timestamp": last_word.timestamp_ms}
        case Failed():
            return {
                "prompt_id": last_word.request_id,
                "node_id": last_word.node_id,
                "node_type": last_word.node_type,
                "executed": list(last_word.executed),
                "exception_message": error_message(last_word),
                "exception_type": last_word.error.exception_type,
                "traceback": list(last_word.error.traceback),
                "current_inputs": dict(last_word.error.current_inputs),
                "current_outputs": list(last_word.executed),
                "timestamp": last_word.timestamp_ms,
            }
        case Interrupted():
            return {
                "prompt_id": last_word.request_id,
                "node_id": last_word.node_id,
                "node_type": last_word.node_type,
                "executed": list(last_word.executed),
                "timestamp": last_word.timestamp_ms,
            }


def error_message(failed: Failed) -> str:
    """The text that clients see: ComfyUI ends it with a newline."""
    return failed.error.message + "\n"
