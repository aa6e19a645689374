"""Problems in ComfyUI's JSON: what is wrong with links and nodes, and the body of a refusal.

Source: spec comfyui-api/validation.md, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import ImportProblem, ImportRejected
from ..nodes.literals import Complaint
from ..nodes.schema import InputConfig
from ..types import TypeSpec
from .api_format import BrokenLink, Link, PromptNode


def at_node(node: PromptNode, complaint: Complaint) -> ImportProblem:
    """The complaint as a problem of `node`."""
    return ImportProblem(
        node_id=node.id,
        class_type=node.class_type,
        type=complaint.type,
        message=complaint.message,
        details=complaint.details,
        extra_info=complaint.extra_info,
    )


def missing_input(name: str) -> Complaint:
    """A required input is absent."""
    return Complaint(
        type="required_input_missing",
        message="Required input is missing",
        details=name.rpartition(".")[2],
        extra_info={"input_name": name},
    )


def bad_length(name: str, link: BrokenLink, config: InputConfig) -> Complaint:
    """A list that has not two entries."""
    return Complaint(
        type="bad_linked_input",
        message="Bad linked input, must be a length-2 list of [node_id, slot_index]",
        details=name,
        extra_info={
            "input_name": name,
            "input_config": config,
            "received_value": link.value,
        },
    )


def type_mismatch(name: str, link: Link, received: TypeSpec, config: InputConfig) -> Complaint:
    """The linked output's type does not fit."""
    return Complaint(
        type="return_type_mismatch",
        message="Return type mismatch between linked nodes",
        details=f"{name}, received_type({received}) mismatch input_type({config[0]})",
        extra_info={
            "input_name": name,
            "input_config": config,
            "received_type": received,
            "linked_node": [link.node_id, link.slot],
        },
    )


def dependency_cycle(name: str, path: Sequence[str]) -> Complaint:
    """Data would flow in a circle; `path` starts and ends with the same node.

    ComfyUI has no such error: it refuses with nothing said.
    """
    return Complaint(
        type="dependency_cycle",
        message="Dependency cycle detected",
        details=f"{name}: {' -> '.join(path)}",
        extra_info={"input_name": name, "cycle": list(path)},
    )


def node_exception(kind: str, text: str) -> Complaint:
    """What ComfyUI reports as an exception of type `kind` while a root is validated."""
    return Complaint(
        type="exception_during_validation",
        message="Exception when validating node",
        details=text,
        extra_info={"exception_type": kind, "traceback": []},
    )


def inner_node_exception(
    kind: str, text: str, name: str, config: InputConfig, link: Link
) -> Complaint:
    """The same in a node that was reached over `link` on a consumer's input `name`."""
    return Complaint(
        type="exception_during_inner_validation",
        message="Exception when validating inner node",
        details=text,
        extra_info={
            "input_name": name,
            "input_config": config,
            "exception_message": text,
            "exception_type": kind,
            "traceback": [],
            "linked_node": [link.node_id, link.slot],
        },
    )


def outputs_failed(
    problems: Sequence[ImportProblem],
    roots: Iterable[str],
    dependent_outputs: Mapping[str, Sequence[str]],
) -> ImportRejected:
    """No output can run; the text at the top is of the roots' own problems."""
    own = set(roots)
    lines = [f"{p.message}: {p.details}" for p in problems if p.node_id in own]
    return ImportRejected(
        "prompt_outputs_failed_validation",
        "Prompt outputs failed validation",
        "\n".join(lines),
        problems=problems,
        dependent_outputs=dependent_outputs,
    )


def node_errors(
    problems: Iterable[ImportProblem], dependent_outputs: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """The `node_errors` object of an answer."""
    found: dict[str, Any] = {}
    for problem in problems:
        entry = found.setdefault(
            problem.node_id,
            {
                "errors": [],
                "dependent_outputs": list(dependent_outputs.get(problem.node_id, ())),
                "class_type": problem.class_type,
            },
        )
        entry["errors"].append(
            {
                "type": problem.type,
                "message": problem.message,
                "details": problem.details,
                "extra_info": problem.extra_info,
            }
        )
    return found


def rejection_body(rejected: ImportRejected) -> dict[str, Any]:
    """The JSON body of the 400."""
    return {
        "error": {
            "type": rejected.type,
            "message": rejected.message,
            "details": rejected.text,
            "extra_info": {},
        },
        "node_errors": node_errors(rejected.problems, rejected.dependent_outputs),
    }
