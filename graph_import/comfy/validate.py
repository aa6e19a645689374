"""A whole prompt: every problem of every output, and which outputs can run all the same.

From each output node everything upstream is checked once, depth first and without recursion, so
depth has no limit but the number of nodes. Source: spec comfyui-api/validation.md, section 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from ..catalog import Catalog
from ..errors import ImportProblem, ImportRejected
from ..nodes.literals import Complaint
from ..nodes.registry import Registry
from ..nodes.schema import InputConfig, InputSpec
from . import problems
from .api_format import JsonValue, Link, PromptGraph, PromptNode, parse_prompt
from .declared import with_declared
from .node_check import Fault, NodeChecker

MAX_LISTED_OUTPUTS: Final = 100_000  # erring nodes times failed outputs would be 10^8


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of which at least one output can run.

    Args:
        prompt: with converted literals, as history shows it.
        roots: the output nodes that can run, in the prompt's order.
        problems: of the others.
        dependent_outputs: erring node -> failed outputs, for `node_errors`.
    """

    prompt: PromptGraph
    roots: tuple[str, ...]
    problems: tuple[ImportProblem, ...]
    dependent_outputs: dict[str, tuple[str, ...]]


@dataclass(slots=True, frozen=True)
class _Consumer:
    """The input over which a node was reached."""

    spec: InputSpec
    config: InputConfig
    link: Link


@dataclass(slots=True)
class _Frame:
    """A node whose upstream is being walked."""

    node: PromptNode
    links: Iterator[tuple[InputSpec, Link]]
    is_valid: bool


def validate(
    prompt_json: JsonValue, registry: Registry, catalog: Catalog, targets: JsonValue = None
) -> Validated:
    """Check the `prompt` object of a request.

    Args: targets: `partial_execution_targets`: if a list, only these output nodes are roots.
    Raises: ImportRejected: nothing in it may run; carries every problem found.
    """
    prompt = parse_prompt(prompt_json)
    registry = with_declared(registry, prompt)
    for node in prompt.nodes.values():
        if node.class_type not in registry:
            raise ImportRejected(
                "invalid_prompt",
                f"Cannot execute because node {node.class_type} does not exist.",
                f"Node ID '#{node.id}'",
            )
    roots = [n.id for n in prompt.nodes.values() if registry[n.class_type].schema.is_output_node]
    if isinstance(targets, list):
        chosen = {target for target in targets if isinstance(target, str)}
        roots = [root for root in roots if root in chosen]
    if not roots:
        raise ImportRejected("prompt_no_outputs", "Prompt has no outputs")
    return _Validation(prompt, registry, catalog).run(roots)


class _Validation:
    """One prompt being validated."""

    def __init__(self, prompt: PromptGraph, registry: Registry, catalog: Catalog) -> None:
        self._prompt = prompt
        self._registry = registry
        self._checker = NodeChecker(prompt, registry, catalog)
        self._verdicts: dict[str, bool] = {}
        self._problems: dict[str, list[ImportProblem]] = {}
        self._dependent_outputs: dict[str, list[str]] = {}
        self._num_listed = 0
        self._checked: dict[str, PromptNode] = {}

    def run(self, roots: list[str]) -> Validated:
        for root in roots:
            self._walk(root)
            if not self._verdicts[root]:
                self._list_failed(root)
        found = tuple(problem for of_node in self._problems.values() for problem in of_node)
        dependent_outputs = {n: tuple(outputs) for n, outputs in self._dependent_outputs.items()}
        valid = tuple(root for root in roots if self._verdicts[root])
        if not valid:
            raise problems.outputs_failed(found, roots, dependent_outputs)
        return Validated(
            prompt=PromptGraph(nodes={**self._prompt.nodes, **self._checked}),
            roots=valid,
            problems=found,
            dependent_outputs=dependent_outputs,
        )

    def _list_failed(self, root: str) -> None:
        """As in ComfyUI, at every erring node found so far; of very many only at its own errors."""
        erring: Iterable[str] = self._problems
        if self._num_listed + len(self._problems) > MAX_LISTED_OUTPUTS:
            erring = [root] if root in self._problems else []
        for node_id in erring:
            self._dependent_outputs.setdefault(node_id, []).append(root)
            self._num_listed += 1

    def _walk(self, root: str) -> None:
        """Give `root` and all that it needs a verdict."""
        if root in self._verdicts:
            return
        path: dict[str, _Frame] = {root: self._enter(root, None)}
        while path:
            frame = next(reversed(path.values()))
            step = next(frame.links, None)
            if step is None:
                self._verdicts[frame.node.id] = frame.is_valid
                path.popitem()
                if path and not frame.is_valid:
                    next(reversed(path.values())).is_valid = False
                continue
            spec, link = step
            if link.node_id in path:
                frame.is_valid = False
                loop = list(path)[list(path).index(link.node_id) :]
                cycle = [link.node_id, *reversed(loop)]
                self._note(frame.node, problems.dependency_cycle(spec.name, cycle))
            elif link.node_id in self._verdicts:
                frame.is_valid &= self._verdicts[link.node_id]
            else:
                config = self._checker.config(frame.node.class_type, spec)
                path[link.node_id] = self._enter(link.node_id, _Consumer(spec, config, link))

    def _enter(self, node_id: str, consumer: _Consumer | None) -> _Frame:
        node = self._prompt.nodes[node_id]
        findings = self._checker.check(node)
        for complaint in findings.complaints:
            self._note(node, complaint)
        for fault in findings.faults:
            self._note(node, _exception(fault, consumer))
        self._checked[node_id] = node.with_literals(findings.literals)
        return _Frame(node, iter(findings.links), findings.is_sound)

    def _note(self, node: PromptNode, complaint: Complaint) -> None:
        self._problems.setdefault(node.id, []).append(problems.at_node(node, complaint))


def _exception(fault: Fault, consumer: _Consumer | None) -> Complaint:
    if consumer is None:
        return problems.node_exception(fault.kind, fault.text)
    return problems.inner_node_exception(
        fault.kind, fault.text, consumer.spec.name, consumer.config, consumer.link
    )
