"""What a node class declares: inputs, outputs, names and flags, in ComfyUI's terms.

Source: spec comfyui-api/api.md, section 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..catalog import Catalog
from ..ir import Port
from ..types import AUTOGROW, BOOLEAN, COMBO, FLOAT, INT, STRING, TypeSpec

InputConfig = list[Any]  # [TYPE, OPTIONS], as ComfyUI's JSON has it


class FileChoices(msgspec.Struct, frozen=True, kw_only=True):
    """A combo's choices are the files of one kind, as they are when asked for, and `more`."""

    kind: str
    more: tuple[str, ...] = ()


class InputSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One declared input.

    Args:
        options: default, min, max ...; None: the class declares no options object at all.
        choices: of a combo.
        is_listed: a combo in the old form, whose type is shown as the list of choices.
        grows: of an input that stands for any number of them: what each is, `name` being the
            beginning of its name; the prompt calls them `images.image0`, `images.image1` ...
        nested: of a choice that brings further inputs, those of all its options; the prompt calls
            them `resize_type.width` ...
    """

    name: str
    type: str
    options: Mapping[str, object] | None = None
    choices: tuple[object, ...] | FileChoices | None = None
    is_listed: bool = True
    is_required: bool = True
    grows: InputSpec | None = None
    nested: tuple[InputSpec, ...] = ()

    @property
    def is_lazy(self) -> bool:
        """Whether what feeds the input is run only if the class asks for it."""
        return self.options is not None and self.options.get("lazy") is True

    def grown(self, given: Iterable[str]) -> tuple[InputSpec, ...]:
        """The inputs that this one stands for, among the names given; itself if it does not grow.

        Numbered inputs come in the order of their numbers, nested ones after the choice.
        """
        if self.grows is None:
            found = set(given) if self.nested else set()
            named = {f"{self.name}.{spec.name}": spec for spec in self.nested}
            return self, *(
                msgspec.structs.replace(spec, name=name, is_required=False)
                for name, spec in named.items()
                if name in found
            )
        stem = f"{self.name}.{self.grows.name}"
        numbers = {name.removeprefix(stem): name for name in given if name.startswith(stem)}
        names = [numbers[n] for n in sorted(filter(_is_number, numbers), key=int)]
        return tuple(
            msgspec.structs.replace(self.grows, name=name, is_required=False) for name in names
        )

    def allowed(self, catalog: Catalog) -> tuple[object, ...] | None:
        """A combo's choices now; None: this is no combo."""
        match self.choices:
            case FileChoices(kind=kind, more=more):
                return catalog.choices(kind) + more
            case fixed:
                return fixed

    def config(self, catalog: Catalog) -> InputConfig:
        """`[TYPE, OPTIONS]`, options `{}` if there are none."""
        options = dict(self.options or {})
        allowed = self.allowed(catalog)
        if allowed is None:
            return [self.type, options]
        if self.is_listed:
            return [list(allowed), options]
        return [self.type, {**options, "options": list(allowed)}]

    def shown(self, catalog: Catalog) -> InputConfig:
        """The config as object_info shows it: an options object that is not declared is absent."""
        config = self.config(catalog)
        has_options = self.options is not None or not self.is_listed
        return config if has_options else config[:1]


class NodeSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A node class as clients see it. `is_v3` picks the richer form of its description.

    Args:
        is_input_list: one call gets all items of the lists on its inputs, constants as lists of
            one; any other class is called once per item.
        output_lists: which outputs are lists, by position; None: none is.
        output_matchtypes: the template that each output's type follows.
    """

    class_type: str
    display_name: str | None
    category: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[Port, ...]
    hidden: Mapping[str, str] = msgspec.field(default_factory=dict)
    python_module: str = "nodes"
    is_output_node: bool = False
    is_v3: bool = False
    is_deprecated: bool = False
    is_experimental: bool = False
    is_input_list: bool = False
    output_lists: tuple[bool | None, ...] | None = None
    output_matchtypes: tuple[str | None, ...] | None = None

    def gives_list(self, slot: int) -> bool:
        """Whether the output at `slot` is a list."""
        return self.output_lists is not None and self.output_lists[slot] is True

    def input(self, name: str) -> InputSpec:
        """The input called `name`. Raises: KeyError."""
        return {spec.name: spec for spec in self.inputs_of((name,))}[name]

    def inputs_of(self, given: Iterable[str]) -> tuple[InputSpec, ...]:
        """The inputs of a node whose prompt names the `given` ones."""
        if all(spec.grows is None and not spec.nested for spec in self.inputs):
            return self.inputs
        names = tuple(given)
        return tuple(one for spec in self.inputs for one in spec.grown(names))

    def description(self, catalog: Catalog) -> dict[str, object]:
        """The class's entry in object_info."""
        required = {s.name: s.shown(catalog) for s in self.inputs if s.is_required}
        optional = {s.name: s.shown(catalog) for s in self.inputs if not s.is_required}
        hidden = {n: [kind] if self.is_v3 else kind for n, kind in self.hidden.items()}
        given: dict[str, dict[str, Any]] = {
            "required": required,
            "optional": optional,
            "hidden": hidden,
        }
        inputs = {part: given[part] for part in given if given[part] or part == "required"}
        no_texts = [None] * len(self.outputs)
        matchtypes = None if self.output_matchtypes is None else list(self.output_matchtypes)
        extras = {"output_tooltips": no_texts, "output_matchtypes": matchtypes}
        flags = {
            "deprecated": self.is_deprecated,
            "experimental": self.is_experimental,
            "api_node": False,
        }
        return {
            "input": inputs,
            "input_order": {part: list(names) for part, names in inputs.items()},
            "output": [port.type for port in self.outputs],
            "output_is_list": list(self.output_lists or [False] * len(self.outputs)),
            "output_name": [port.name for port in self.outputs],
            **(extras if self.is_v3 else {}),
            "name": self.class_type,
            "display_name": self.display_name,
            "description": "",
            "python_module": self.python_module,
            "category": self.category,
            "output_node": self.is_output_node,
            **(flags if self.is_v3 else {flag: True for flag, is_set in flags.items() if is_set}),
        }


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 9


def ports(**types: str) -> tuple[Port, ...]:
    """Outputs by name."""
    return tuple(Port(name=name, type=type_) for name, type_ in types.items())


def socket(name: str, type_: TypeSpec, *, is_bare: bool = False) -> InputSpec:
    """An input that only a link can feed. A bare one is shown without an options object."""
    return InputSpec(name=name, type=str(type_), options=None if is_bare else {})


def integer(name: str, **options: object) -> InputSpec:
    """An INT."""
    return InputSpec(name=name, type=INT, options=options)


def number(name: str, **options: object) -> InputSpec:
    """A FLOAT."""
    return InputSpec(name=name, type=FLOAT, options=options)


def text(name: str, **options: object) -> InputSpec:
    """A STRING."""
    return InputSpec(name=name, type=STRING, options=options)


def switch(name: str, **options: object) -> InputSpec:
    """A BOOLEAN."""
    return InputSpec(name=name, type=BOOLEAN, options=options)


def growing(name: str, each: InputSpec, *, min: int, max: int) -> InputSpec:
    """Any number of inputs like `each`, whose name begins theirs."""
    template = {
        "input": {"required": {each.name: [each.type, dict(each.options or {})]}},
        "prefix": each.name,
        "min": min,
        "max": max,
    }
    return InputSpec(name=name, type=AUTOGROW, options={"template": template}, grows=each)


def combo(
    name: str, choices: tuple[object, ...] | FileChoices, options: Mapping[str, object] | None
) -> InputSpec:
    """A choice, in the old form that the core classes use."""
    return InputSpec(name=name, type=COMBO, options=options, choices=choices)


def choice(name: str, choices: tuple[str, ...], **options: object) -> InputSpec:
    """A combo in the form of ComfyUI's newer classes."""
    return InputSpec(
        name=name,
        type=COMBO,
        options={**options, "multiselect": False},
        choices=choices,
        is_listed=False,
    )
