"""What types come over links from outputs that follow their inputs: those of switches.

A class says so with a template: the inputs and outputs of one `template_id` have one type, whatever
is wired to them. ComfyUI's editor sees to that and its server lets any type pass; here nobody but
the server checks a prompt. Source: spec comfyui-api/validation.md, sections 4 and 9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ..nodes.registry import Registry
from ..nodes.schema import InputSpec
from ..types import ANY, BOOLEAN, FLOAT, INT, MATCH_TYPE, STRING, TypeSpec
from .api_format import JsonValue, Link, Literal, PromptGraph

Types = tuple[TypeSpec, ...]
_LITERALS: Final[dict[type, str]] = {
    bool: BOOLEAN,
    int: f"{INT},{FLOAT}",
    float: FLOAT,
    str: STRING,
}


class WiredTypes:
    """The types that come over the links of one prompt, each node looked at once."""

    def __init__(self, prompt: PromptGraph, registry: Registry) -> None:
        self._prompt = prompt
        self._registry = registry
        self._known: dict[tuple[str, str], Types] = {}

    def over(self, link: Link) -> Types:
        """Every type that may come over `link`; none: nothing is known, as in a circle.

        `link` leads to an output that there is.
        """
        followed = self._followed(link)
        if followed is None:
            return (self._declared(link),)
        if followed not in self._known:
            self._find(followed)
        return self._known[followed]

    def _find(self, wanted: tuple[str, str]) -> None:
        """Find the types of a template, sources first; without recursion."""
        path = {wanted: self._feeding(wanted)}
        found: dict[tuple[str, str], list[TypeSpec]] = {wanted: []}
        while path:
            template = next(reversed(path))
            given = next(path[template], None)
            if given is None:
                self._known[template] = tuple(found[template])
                path.popitem()
                if path:
                    _add(found[next(reversed(path))], self._known[template])
            elif not isinstance(given, Link):
                _add(found[template], given)
            elif (followed := self._followed(given)) is None:
                _add(found[template], (self._declared(given),))
            elif followed in self._known:
                _add(found[template], self._known[followed])
            elif followed not in path:
                path[followed] = self._feeding(followed)
                found[followed] = []

    def _feeding(self, template: tuple[str, str]) -> Iterator[Link | Types]:
        """The sound links and the types of literals on a node's inputs of one template."""
        node_id, template_id = template
        node = self._prompt.nodes[node_id]
        for spec in self._registry[node.class_type].schema.inputs_of(node.inputs or {}):
            match (node.inputs or {}).get(spec.name):
                case Link() as link if template_id_of(spec) == template_id and self._leads(link):
                    yield link
                case Literal(value=value) if template_id_of(spec) == template_id:
                    yield _types_of_literal(value)
                case _:
                    continue

    def _leads(self, link: Link) -> bool:
        """Whether there is such a node, with such an output."""
        if link.node_id not in self._prompt.nodes:
            return False
        num_outputs = len(self._registry[self._class_of(link)].schema.outputs)
        return -num_outputs <= link.slot < num_outputs

    def _declared(self, link: Link) -> TypeSpec:
        return self._registry[self._class_of(link)].schema.outputs[link.slot].type

    def _followed(self, link: Link) -> tuple[str, str] | None:
        """The node and the template that an output's type follows; None: it has its own."""
        templates = self._registry[self._class_of(link)].schema.output_matchtypes
        template_id = None if templates is None else templates[link.slot]
        return None if template_id is None else (link.node_id, template_id)

    def _class_of(self, link: Link) -> str:
        return self._prompt.nodes[link.node_id].class_type


def template_id_of(spec: InputSpec) -> str | None:
    """The template that an input belongs to; None: none."""
    template = _template(spec)
    return str(template["template_id"]) if template is not None else None


def allowed_types(spec: InputSpec) -> TypeSpec:
    """What the template of an input allows; without one, anything."""
    template = _template(spec)
    return ANY if template is None else str(template.get("allowed_types", ANY))


def _template(spec: InputSpec) -> dict[str, Any] | None:
    template = (spec.options or {}).get("template")
    return template if spec.type == MATCH_TYPE and isinstance(template, dict) else None


def _types_of_literal(value: JsonValue) -> Types:
    type_ = _LITERALS.get(type(value))
    return () if type_ is None else (type_,)


def _add(types: list[TypeSpec], more: Types) -> None:
    types += [type_ for type_ in more if type_ not in types]
