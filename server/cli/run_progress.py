"""How far a run is, told by ComfyUI's messages, on a progress bar."""

from __future__ import annotations

from typing import Any

from ..client import Heard
from .terminal import ProgressBar
from .workflow_file import Prompt, node_name


class RunProgress:
    """Hears the messages of one request; every node counts as much as the steps that it reports."""

    def __init__(self, prompt: Prompt, bar: ProgressBar) -> None:
        self._prompt = prompt
        self._bar = bar
        self._done: dict[str, float] = dict.fromkeys(prompt, 0.0)
        self._of: dict[str, float] = dict.fromkeys(prompt, 1.0)
        self._text = "waiting in the queue"
        self._detail = ""
        self._show()

    def hear(self, heard: Heard) -> None:
        """Take in one message and redraw."""
        data = heard.data
        match heard.type:
            case "execution_cached":
                for node_id in data.get("nodes", ()):
                    self._done[node_id] = self._of.get(node_id, 1.0)
            case "progress_state":
                self._hear_state(data.get("nodes", {}))
            case "executing":
                self._detail = ""
                if data.get("node") is not None:
                    self._text = node_name(self._prompt, str(data["node"]))
            case "progress":
                self._text = node_name(self._prompt, str(data.get("node")))
                self._detail = f"step {data.get('value')} of {data.get('max')}"
            case "execution_success":
                self._done = dict(self._of)
                self._text, self._detail = "done", ""
            case _:
                return
        self._show()

    def _hear_state(self, nodes: dict[str, Any]) -> None:
        for node_id, state in nodes.items():
            most = max(1.0, float(state.get("max", 1.0)))
            self._of[node_id] = most
            is_finished = state.get("state") == "finished"
            self._done[node_id] = most if is_finished else min(most, float(state.get("value", 0.0)))

    def _show(self) -> None:
        share = sum(self._done.values()) / max(1.0, sum(self._of.values()))
        self._bar.show(share, self._text, self._detail)
