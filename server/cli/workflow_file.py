"""Workflows as files on a command line: read one, set inputs in it (`--set NODE.input=value`)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from ...graph_import.errors import NodeloomError
from ..embedded import PNG_SIGNATURE, NoWorkflow, prompt_in_png

MAX_FILE_BYTES: Final = 64 * 1024 * 1024

Prompt = dict[str, dict[str, Any]]  # the JSON door: node id -> class_type, inputs


class BadSetting(NodeloomError):
    """A `--set` that names nothing in the workflow."""

    code = "bad_setting"


def read_workflow(path: Path) -> Prompt:
    """The prompt graph in an API-format JSON file, or in a PNG that carries one.

    Raises: NoWorkflow: the file can't be read, is too large, or holds no such graph.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise NoWorkflow(f"{path}: {problem.strerror}") from problem
    if len(data) > MAX_FILE_BYTES:
        raise NoWorkflow(f"{path}: larger than {MAX_FILE_BYTES >> 20} MB")
    try:
        text = prompt_in_png(data) if data.startswith(PNG_SIGNATURE) else data.decode("utf-8-sig")
        return parse_prompt(text)
    except UnicodeDecodeError as problem:
        raise NoWorkflow(f"{path}: neither a PNG nor text") from problem
    except NoWorkflow as problem:
        raise NoWorkflow(f"{path}: {problem.message}") from problem


def parse_prompt(text: str) -> Prompt:
    """The prompt graph in a JSON text: bare, or the body of a POST /prompt. Raises: NoWorkflow."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise NoWorkflow(f"not valid JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise NoWorkflow("this JSON is no workflow: it must be an object of nodes")
    inner = value.get("prompt")
    graph = inner if isinstance(inner, dict) and "class_type" not in inner else value
    for candidate in (value, graph):
        if isinstance(candidate.get("nodes"), list) and "links" in candidate:
            raise NoWorkflow("this is the editor's format; export it with 'Export (API)'")
    if not any(isinstance(node, dict) and "class_type" in node for node in graph.values()):
        raise NoWorkflow("this JSON is no workflow: no entry is a node with a class_type")
    return cast(Prompt, graph)


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
