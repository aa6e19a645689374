"""A registered workflow as it is stored and listed: a version, and what it was made from."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import msgspec

from ...graph_import.dsl import describe_program
from ...graph_import.dsl.program import Program
from ...graph_import.errors import NodeloomError
from ...graph_import.handles import Scalar
from ...graph_import.nodes.user_model import PREFIX

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
Json = dict[str, Any]  # the JSON door


class UnknownWorkflow(NodeloomError):
    """No workflow or version of this name (404)."""

    code = "unknown_workflow"


class RegistrationConflict(NodeloomError):
    """It can't be registered as things are: another content than said, or no room (409)."""

    code = "registration_conflict"


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A named input of a graph: input `input` of node `node_id`.

    Args:
        type: as the node class declares it; `COMBO` for a choice.
        default: what the graph has there; unset: a value must be given.
        details: min, max and choices, or (files) the kind of file, for listings.
    """

    name: str
    node_id: str
    input: str
    type: str
    default: Scalar | msgspec.UnsetType = msgspec.UNSET
    details: dict[str, Any] = msgspec.field(default_factory=dict)

    def describe(self) -> Json:
        """As `WorkflowInput.describe`, with what the node class says beside it."""
        has_default = self.default is not msgspec.UNSET
        described = {"name": self.name, "type": self.type, "is_required": not has_default}
        return described | ({"default": self.default} if has_default else {}) | self.details


class PythonSource(msgspec.Struct, frozen=True, kw_only=True, tag="python"):
    """A workflow of a Python file, with the file's text and its program for the defaults."""

    file: str
    workflow: str
    sha256: str
    text: bytes
    program: Program

    def content(self) -> list[Any]:
        """What makes two of them the same."""
        return ["python", self.file, self.workflow, self.sha256]

    def describe(self) -> Json:
        """kind, file, what the workflow takes and gives, and whose models it runs."""
        described = describe_program(self.program)
        own = {call.class_type for call in self.program.calls}
        names = {name.removeprefix(PREFIX).split(".")[0] for name in own if name.startswith(PREFIX)}
        return {
            "kind": "python",
            "file": self.file,
            "workflow": described.pop("name"),
            "sha256": self.sha256,
            **described,
            "models": sorted(names),
        }


class GraphSource(msgspec.Struct, frozen=True, kw_only=True, tag="graph"):
    """A ComfyUI graph in API format; `outputs` are its output nodes by name."""

    prompt: Json
    parameters: tuple[Parameter, ...]
    outputs: dict[str, str]

    def content(self) -> list[Any]:
        """What makes two of them the same."""
        return ["graph", self.prompt, msgspec.to_builtins(self.parameters), self.outputs]

    def describe(self) -> Json:
        """kind, and what the graph takes and gives."""
        return {
            "kind": "graph",
            "inputs": [parameter.describe() for parameter in self.parameters],
            "outputs": list(self.outputs),
        }


Source = PythonSource | GraphSource


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it was registered once; never changed afterwards."""

    name: str
    version: int
    created_ms: int
    source: Source

    def describe(self) -> Json:
        """The version as listings have it."""
        numbers = {"version": self.version, "create_time": self.created_ms}
        return {"name": self.name, **numbers, **self.source.describe()}


def content_hash(source: Source) -> str:
    """Equal for equal contents; hex digits."""
    text = msgspec.json.encode(source.content(), order="deterministic")
    return hashlib.sha256(text).hexdigest()
