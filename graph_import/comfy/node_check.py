"""One node against its schema: its literals, the shape and type of its links, its own validator.

Finds everything that is wrong with the node itself; `validate.py` walks from node to node.
Source: spec comfyui-api/validation.md, sections 2 to 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from ..catalog import Catalog
from ..nodes.base import NodeClass
from ..nodes.literals import (
    Complaint,
    InputRefused,
    check_choice,
    check_range,
    convert,
    custom_failure,
)
from ..nodes.registry import Registry
from ..nodes.schema import InputConfig, InputSpec
from ..types import connects
from . import problems
from .api_format import BrokenLink, JsonValue, Link, Literal, PromptGraph, PromptNode
from .wired import WiredTypes, allowed_types


@dataclass(slots=True, frozen=True)
class Fault:
    """What in ComfyUI is an exception: its type and text."""

    kind: str
    text: str


@dataclass(slots=True)
class Findings:
    """What is known of a node after its own checks.

    Args:
        complaints: in the order of the schema's inputs.
        faults: told as one or the other kind of exception, by how the node was reached.
        literals: the converted values that passed.
        links: the sound links, with the inputs that they feed.
    """

    complaints: list[Complaint] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    literals: dict[str, JsonValue] = field(default_factory=dict)
    links: list[tuple[InputSpec, Link]] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong with the node itself."""
        return not self.complaints and not self.faults


class NodeChecker:
    """Checks nodes of one prompt. Lists of files are asked for once per prompt."""

    def __init__(self, prompt: PromptGraph, registry: Registry, catalog: Catalog) -> None:
        self._prompt = prompt
        self._registry = registry
        self._catalog = catalog
        self._wired = WiredTypes(prompt, registry)
        self._configs: dict[tuple[str, str], InputConfig] = {}
        self._choices: dict[tuple[str, str], tuple[object, ...] | None] = {}

    def check(self, node: PromptNode) -> Findings:
        """Everything wrong with `node` itself."""
        findings = Findings()
        if node.inputs is None:
            findings.faults.append(_no_inputs(node))
            return findings
        cls = self._registry[node.class_type]
        for spec in cls.schema.inputs_of(node.inputs):
            try:
                self._check_input(node.inputs, spec, cls, findings)
            except InputRefused as refused:
                findings.complaints.append(refused.complaint)
        for name, reason in cls.validate(findings.literals, self._catalog).items():
            findings.complaints.append(custom_failure(name, reason))
        return findings

    def config(self, class_type: str, spec: InputSpec) -> InputConfig:
        """`[TYPE, OPTIONS]` of an input."""
        key = (class_type, spec.name)
        if key not in self._configs:
            self._configs[key] = spec.config(self._catalog)
        return self._configs[key]

    def _check_input(
        self,
        inputs: Mapping[str, Link | BrokenLink | Literal],
        spec: InputSpec,
        cls: NodeClass,
        findings: Findings,
    ) -> None:
        """Raises: InputRefused."""
        class_type = cls.schema.class_type
        if spec.name not in inputs:
            if spec.is_required:
                raise InputRefused(problems.missing_input(spec.name))
            return
        match inputs[spec.name]:
            case Literal(value=value):
                has_own_checks = spec.name in cls.own_checks
                findings.literals[spec.name] = self._literal(
                    class_type, spec, value, has_own_checks=has_own_checks
                )
            case BrokenLink(value=value) as broken if len(value) != 2:
                config = self.config(class_type, spec)
                raise InputRefused(problems.bad_length(spec.name, broken, config))
            case BrokenLink(value=value):
                findings.faults.append(self._broken_link(value))
            case Link() as link:
                self._link(class_type, spec, link, findings)

    def _literal(
        self, class_type: str, spec: InputSpec, value: JsonValue, *, has_own_checks: bool
    ) -> JsonValue:
        config = partial(self.config, class_type, spec)
        converted = convert(spec, value, config)
        if has_own_checks:
            return converted
        check_range(spec, converted, config)
        key = (class_type, spec.name)
        if key not in self._choices:
            self._choices[key] = spec.allowed(self._catalog)
        choices = self._choices[key]
        if choices is not None:
            check_choice(spec, converted, choices, config)
        return converted

    def _link(self, class_type: str, spec: InputSpec, link: Link, findings: Findings) -> None:
        if link.node_id not in self._prompt.nodes:
            findings.faults.append(Fault("KeyError", repr(link.node_id)))
            return
        source = self._registry[self._prompt.nodes[link.node_id].class_type].schema
        if not -len(source.outputs) <= link.slot < len(source.outputs):
            findings.faults.append(Fault("IndexError", "tuple index out of range"))
            return
        config = self.config(class_type, spec)
        for received in self._wired.over(link):
            if not connects(received, config[0]) or not connects(received, allowed_types(spec)):
                raise InputRefused(problems.type_mismatch(spec.name, link, received, config))
        findings.links.append((spec, link))

    def _broken_link(self, value: list[JsonValue]) -> Fault:
        node_id, slot = value
        if isinstance(node_id, list | dict):
            return Fault("TypeError", f"unhashable type: '{type(node_id).__name__}'")
        if not isinstance(node_id, str) or node_id not in self._prompt.nodes:
            return Fault("KeyError", repr(node_id))
        kind = type(slot).__name__
        return Fault("TypeError", f"tuple indices must be integers or slices, not {kind}")


def _no_inputs(node: PromptNode) -> Fault:
    if "inputs" not in node.submitted:
        return Fault("KeyError", "'inputs'")
    kind = type(node.submitted["inputs"]).__name__
    return Fault("TypeError", f"argument of type '{kind}' is not iterable")
