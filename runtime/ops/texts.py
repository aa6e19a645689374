"""The bodies of text nodes whose inputs come over edges, and of `list_item`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...graph_import.text_functions import FUNCTIONS
from ...graph_import.types import BOOLEAN, INT, STRING
from ..errors import NodeFailed
from .arguments import argument
from .base import OpBody, OpCall, OpContext, OpResult

_KINDS: Final[dict[str, type]] = {STRING: str, INT: int, BOOLEAN: bool}


def list_item(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """items, index -> the item at `index`."""
    results = []
    for call in calls:
        items, index = argument(call, "items", tuple), argument(call, "index", int)
        if not 0 <= index < len(items):
            raise NodeFailed(f"a list of {len(items)} items has none at {index}", input="index")
        results.append(OpResult(outputs=(items[index],)))
    return results


def _body(name: str) -> OpBody:
    function = FUNCTIONS[name]

    def run(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        results = []
        for call in calls:
            args: dict[str, object] = {
                arg: argument(call, arg, _KINDS[kind]) for arg, kind in function.args.items()
            }
            try:
                results.append(OpResult(outputs=(function(args),)))
            except ValueError as problem:
                raise NodeFailed(str(problem)) from problem
        return results

    return run


text_concatenate = _body("concatenate")
text_substring = _body("substring")
text_length = _body("length")
text_case = _body("case")
text_trim = _body("trim")
text_replace = _body("replace")
text_contains = _body("contains")
text_compare = _body("compare")
text_prefix = _body("prefix")
text_suffix = _body("suffix")
text_replace_in = _body("replace_in")
text_strip = _body("strip")
text_lower = _body("lower")
text_upper = _body("upper")
text_truncate = _body("truncate")
