"""Workflows as files on a command line: read one, set inputs in it (`--set NODE.input=value`)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ...graph_import.errors import NodeloomError
from ...graph_import.nodes.registry import Registry
from ...graph_import.workflow_file import NodeTable, WorkflowFileProblem
from ...runtime.config import Settings
from ..any_workflow import Opened, open_bytes
from ..catalog import FolderCatalog
from ..embedded import NoWorkflow
from ..files import Folders
from ..model_paths import ModelPaths

MAX_FILE_BYTES: Final = 64 * 1024 * 1024

Prompt = dict[str, dict[str, Any]]  # the JSON door: node id -> class_type, inputs


class BadSetting(NodeloomError):
    """A `--set` that names nothing in the workflow."""

    code = "bad_setting"


def read_workflow(path: Path, table: Callable[[], NodeTable]) -> Opened:
    """The workflow in a file: JSON in API or UI format, or a picture that carries one.

    Args:
        table: gives the node classes, which the UI format needs.

    Raises: NoWorkflow: the file can't be read, is too large, or holds no workflow.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise NoWorkflow(f"{path}: {problem.strerror}") from problem
    if len(data) > MAX_FILE_BYTES:
        raise NoWorkflow(f"{path}: larger than {MAX_FILE_BYTES >> 20} MB")
    try:
        return open_bytes(data, table)
    except (NoWorkflow, WorkflowFileProblem) as problem:
        raise NoWorkflow(f"{path}: {problem.message}") from problem


def local_table(settings: Settings) -> NodeTable:
    """The node classes that are known here, with the files of these folders."""
    catalog = FolderCatalog(ModelPaths.of(settings), Folders.of(settings))
    return NodeTable(Registry().object_info(catalog))


def note_lines(opened: Opened) -> Iterator[str]:
    """What was made of the file, a line for each remark."""
    for note in opened.notes:
        where = f"{note.class_type} #{note.node}: " if note.node else ""
        pack = f" (pack {note.pack})" if note.pack else ""
        inside = f" [in {' > '.join(note.subgraph)}]" if note.subgraph else ""
        yield f"{where}{note.text}{pack}{inside}"


def with_settings(prompt: Prompt, settings: Iterable[str]) -> Prompt:
    """A copy of `prompt` with each `NODE.input=value` done.

    A value is taken as JSON where it is JSON, else as text. Raises: BadSetting: malformed, or it
    names an unknown node or input; the message lists what there is.
    """
    changed = copy.deepcopy(prompt)
    for setting in settings:
        target, separator, text = setting.partition("=")
        if not separator or "." not in target:
            raise BadSetting(f"--set {setting}: must look like NODE.input=value")
        node_id, name = find_input(changed, target)
        changed[node_id]["inputs"][name] = _value(text)
    return changed


def node_name(prompt: Mapping[str, Any], node_id: str) -> str:
    """What people call a node: its title or class, and its id."""
    node = prompt.get(node_id)
    if not isinstance(node, dict):
        return f"#{node_id}"
    meta = node.get("_meta")
    title = meta.get("title") if isinstance(meta, dict) else None
    return f"{title or node.get('class_type', 'node')} #{node_id}"


def find_input(prompt: Prompt, target: str) -> tuple[str, str]:
    """The node id and the input that `target` names; both may hold dots. Raises: BadSetting."""
    cuts = [place for place, character in enumerate(target) if character == "."]
    for cut in cuts:
        node_id, name = target[:cut], target[cut + 1 :]
        if name in _inputs(prompt, node_id):
            return node_id, name
    for cut in cuts:
        node_id, name = target[:cut], target[cut + 1 :]
        if node_id in prompt:
            there = ", ".join(_inputs(prompt, node_id)) or "none"
            kind = prompt[node_id].get("class_type", "node")
            raise BadSetting(f"{kind} #{node_id} has no input {name!r}; its inputs: {there}")
    there = ", ".join(node_name(prompt, node_id) for node_id in prompt)
    raise BadSetting(f"there is no node {target[: cuts[0]]!r}; the nodes: {there}")


def _inputs(prompt: Prompt, node_id: str) -> dict[str, Any]:
    node = prompt.get(node_id)
    inputs = node.get("inputs") if isinstance(node, dict) else None
    return inputs if isinstance(inputs, dict) else {}


def _value(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
