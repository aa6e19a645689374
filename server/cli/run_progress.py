"""How far a run is, told by ComfyUI's messages, on a progress bar."""

from __future__ import annotations

from typing import Any

from ..client import Heard
from .terminal import ProgressBar
from .workflow_file import Prompt, node_name


class RunProgress:
    """Hears the messages of one request. A node weighs as much as the steps that it asks for."""

    def __init__(self, prompt: Prompt, bar: ProgressBar) -> None:
        self._prompt = prompt
        self._bar = bar
        self._weights = {node_id: _weight(node) for node_id, node in prompt.items()}
        self._shares = dict.fromkeys(prompt, 0.0)
        self._text = "waiting in the queue"
        self._detail = ""
        self._show()

    def hear(self, heard: Heard) -> None:
        """Take in one message and redraw."""
        data = heard.data
        match heard.type:
            case "execution_cached":
                self._shares |= dict.fromkeys(data.get("nodes", ()), 1.0)
            case "progress_state":
                for node_id, state in data.get("nodes", {}).items():
                    self._shares[node_id] = _share(state)
            case "executing":
                self._detail = ""
                if data.get("node") is not None:
                    self._text = node_name(self._prompt, str(data["node"]))
            case "progress":
                self._text = node_name(self._prompt, str(data.get("node")))
                self._detail = f"step {data.get('value')} of {data.get('max')}"
            case "execution_success":
                self._shares = dict.fromkeys(self._prompt, 1.0)
                self._text, self._detail = "done", ""
            case _:
                return
        self._show()

    def _show(self) -> None:
        done = sum(self._shares.get(node, 0.0) * weight for node, weight in self._weights.items())
        self._bar.show(done / max(1.0, sum(self._weights.values())), self._text, self._detail)


def _weight(node: object) -> float:
    """Steps where the node says how many; 1 for all others."""
    inputs = node.get("inputs") if isinstance(node, dict) else None
    steps = inputs.get("steps") if isinstance(inputs, dict) else None
    if isinstance(steps, bool) or not isinstance(steps, int):
        return 1.0
    return float(max(1, steps))


def _share(state: dict[str, Any]) -> float:
    """How much of a node is done, from its entry in a progress picture."""
    if state.get("state") == "finished":
        return 1.0
    return float(state.get("value", 0.0)) / max(1.0, float(state.get("max", 1.0)))
