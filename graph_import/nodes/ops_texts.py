"""The ops of texts and of lists."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..text_functions import FUNCTIONS
from ..types import ANY, BOOLEAN, INT, STRING
from .op_spec import OpSpec
from .schema import ports

_REGEX: Final[Mapping[str, str]] = {
    "string": STRING,
    "regex_pattern": STRING,
    "case_insensitive": BOOLEAN,
    "multiline": BOOLEAN,
    "dotall": BOOLEAN,
}

TABLE: Final[Mapping[str, OpSpec]] = MappingProxyType(
    {
        **{
            f"text_{name}": OpSpec(args=function.args, outputs=ports(value=function.gives))
            for name, function in FUNCTIONS.items()
        },
        "regex_match": OpSpec(args=_REGEX, outputs=ports(matches=BOOLEAN)),
        "regex_extract": OpSpec(
            args={**_REGEX, "mode": STRING, "group_index": INT}, outputs=ports(string=STRING)
        ),
        "regex_replace": OpSpec(
            args={**_REGEX, "replace": STRING, "count": INT}, outputs=ports(string=STRING)
        ),
        "list_item": OpSpec(args={"items": ANY, "index": INT}, outputs=ports(item=ANY)),
    }
)
