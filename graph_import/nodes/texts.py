"""Node classes of texts. On constants they are folded; with an edge on an input they are ops."""

from __future__ import annotations

from typing import Final

from ..ir import Port
from ..text_functions import FUNCTIONS
from ..types import BOOLEAN, INT, STRING
from .base import NodeClass
from .lowering import Constant, Lowering, Value
from .schema import InputSpec, NodeSchema, integer, switch, text
from .tabled import Lower, choice, node_class
from .values import ListValue

_TEXTS: Final = text("texts", multiline=False)
_STRING: Final = text("string", multiline=True)
_FLAGS: Final = {"case_insensitive": True, "multiline": False, "dotall": False}


def _function(name: str) -> Lower:
    """Folds the function called `name`, or adds its op."""

    def lower(node: Lowering) -> tuple[Value, ...]:
        if not all(isinstance(value, Constant) for value in node.inputs.values()):
            return node.add(f"text_{name}", node.inputs)
        try:
            value = FUNCTIONS[name]({arg: node.constant(arg) for arg in node.inputs})
        except ValueError as problem:
            raise node.refusal(next(iter(node.inputs)), str(problem)) from problem
        return (Constant(value=value),)

    return lower


def _regex(op: str, **defaults: bool | int) -> Lower:
    """Adds the op: users' patterns are never run where prompts are lowered."""

    def lower(node: Lowering) -> tuple[Value, ...]:
        return node.add(op, {**defaults, **node.inputs})

    return lower


def _merge(node: Lowering) -> tuple[Value, ...]:
    return (ListValue(items=node.items("texts")),)


def _string_class(
    class_type: str, title: str, lower: Lower, inputs: tuple[InputSpec, ...], output: Port, doc: str
) -> type[NodeClass]:
    schema = NodeSchema(
        class_type=class_type,
        display_name=title,
        category="utils/string",
        python_module="comfy_extras.nodes_string",
        inputs=inputs,
        outputs=(output,),
        is_v3=True,
    )
    return node_class(schema, lower, doc)


def _dataset_class(
    class_type: str,
    title: str,
    lower: Lower,
    inputs: tuple[InputSpec, ...],
    doc: str,
    *,
    is_input_list: bool = False,
) -> type[NodeClass]:
    schema = NodeSchema(
        class_type=class_type,
        display_name=title,
        category="dataset/text",
        python_module="comfy_extras.nodes_dataset",
        inputs=(_TEXTS, *inputs),
        outputs=(Port(name="texts", type=STRING),),
        is_v3=True,
        is_experimental=True,
        is_input_list=is_input_list,
        output_lists=(None,),
    )
    return node_class(schema, lower, doc)


def _line(name: str) -> InputSpec:
    return text(name, default="", multiline=False)


def _flags(*, is_required: bool) -> tuple[InputSpec, ...]:
    return tuple(
        InputSpec(name=name, type=BOOLEAN, options={"default": is_set}, is_required=is_required)
        for name, is_set in _FLAGS.items()
    )


_STRING_OUT: Final = Port(name=STRING, type=STRING)
_BOTH: Final = (text("string_a", multiline=True), text("string_b", multiline=True))
_PATTERN: Final = (_STRING, text("regex_pattern", multiline=True))

NODES: Final[tuple[type[NodeClass], ...]] = (
    _string_class(
        "StringConcatenate",
        "Concatenate",
        _function("concatenate"),
        (*_BOTH, _line("delimiter")),
        _STRING_OUT,
        "Two texts as one.",
    ),
    _string_class(
        "StringSubstring",
        "Substring",
        _function("substring"),
        (_STRING, integer("start"), integer("end")),
        _STRING_OUT,
        "A part of a text.",
    ),
    _string_class(
        "StringLength",
        "Length",
        _function("length"),
        (_STRING,),
        Port(name="length", type=INT),
        "The number of characters.",
    ),
    _string_class(
        "CaseConverter",
        "Case Converter",
        _function("case"),
        (_STRING, choice("mode", ("UPPERCASE", "lowercase", "Capitalize", "Title Case"))),
        _STRING_OUT,
        "Upper and lower case.",
    ),
    _string_class(
        "StringTrim",
        "Trim",
        _function("trim"),
        (_STRING, choice("mode", ("Both", "Left", "Right"))),
        _STRING_OUT,
        "White space taken off.",
    ),
    _string_class(
        "StringReplace",
        "Replace",
        _function("replace"),
        (_STRING, text("find", multiline=True), text("replace", multiline=True)),
        _STRING_OUT,
        "A text put in the place of another.",
    ),
    _string_class(
        "StringContains",
        "Contains",
        _function("contains"),
        (_STRING, text("substring", multiline=True), switch("case_sensitive", default=True)),
        Port(name="contains", type=BOOLEAN),
        "Whether a text is part of another.",
    ),
    _string_class(
        "StringCompare",
        "Compare",
        _function("compare"),
        (
            *_BOTH,
            choice("mode", ("Starts With", "Ends With", "Equal")),
            switch("case_sensitive", default=True),
        ),
        Port(name=BOOLEAN, type=BOOLEAN),
        "Whether texts are equal, or begin or end alike.",
    ),
    _string_class(
        "RegexMatch",
        "Regex Match",
        _regex("regex_match"),
        (*_PATTERN, *_flags(is_required=True)),
        Port(name="matches", type=BOOLEAN),
        "Whether a pattern occurs.",
    ),
    _string_class(
        "RegexExtract",
        "Regex Extract",
        _regex("regex_extract"),
        (
            *_PATTERN,
            choice("mode", ("First Match", "All Matches", "First Group", "All Groups")),
            *_flags(is_required=True),
            integer("group_index", default=1, min=0, max=100),
        ),
        _STRING_OUT,
        "What a pattern matches.",
    ),
    _string_class(
        "RegexReplace",
        "Regex Replace",
        _regex("regex_replace", **_FLAGS, count=0),
        (
            *_PATTERN,
            text("replace", multiline=True),
            *_flags(is_required=False),
            InputSpec(
                name="count",
                type=INT,
                options={"default": 0, "min": 0, "max": 100},
                is_required=False,
            ),
        ),
        _STRING_OUT,
        "What a pattern matches, replaced.",
    ),
    _dataset_class(
        "AddTextPrefix",
        "Add Text Prefix",
        _function("prefix"),
        (_line("prefix"),),
        "A text before each text.",
    ),
    _dataset_class(
        "AddTextSuffix",
        "Add Text Suffix",
        _function("suffix"),
        (_line("suffix"),),
        "A text behind each text.",
    ),
    _dataset_class(
        "ReplaceText",
        "Replace Text",
        _function("replace_in"),
        (_line("find"), _line("replace")),
        "A text put in the place of another.",
    ),
    _dataset_class(
        "StripWhitespace", "Strip Whitespace", _function("strip"), (), "White space taken off."
    ),
    _dataset_class("TextToLowercase", "Text to Lowercase", _function("lower"), (), "Lower case."),
    _dataset_class("TextToUppercase", "Text to Uppercase", _function("upper"), (), "Upper case."),
    _dataset_class(
        "TruncateText",
        "Truncate Text",
        _function("truncate"),
        (integer("max_length", default=77, min=1, max=10000),),
        "The beginning of each text.",
    ),
    _dataset_class(
        "MergeTextLists",
        "Merge Text Lists",
        _merge,
        (),
        "All texts as one list.",
        is_input_list=True,
    ),
)
