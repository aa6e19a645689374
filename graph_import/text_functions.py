"""What the text nodes compute: pure functions, folded where a prompt is lowered, else run as ops.

Source: ComfyUI 0.8.0, `nodes.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from .handles import Scalar
from .types import BOOLEAN, INT, STRING

MAX_TEXT_LENGTH: Final = 1_000_000  # characters that a node may make of its texts


class TextFunction(msgspec.Struct, frozen=True, kw_only=True):
    """One function: the types of its arguments by name, and of what it gives."""

    args: Mapping[str, str]
    gives: str
    run: Callable[..., Scalar]

    def __call__(self, arguments: Mapping[str, Any]) -> Scalar:
        """What it gives. Raises: ValueError: the result would be too long, a choice is unknown."""
        return self.run(**arguments)


def limited(length: int) -> None:
    """Raises: ValueError: a text of that many characters is too long."""
    if length > MAX_TEXT_LENGTH:
        raise ValueError(f"a text of {length} characters is too long: {MAX_TEXT_LENGTH} may be")


def _concatenate(string_a: str, string_b: str, delimiter: str) -> str:
    limited(len(string_a) + len(delimiter) + len(string_b))
    return string_a + delimiter + string_b


def _replace(string: str, find: str, replace: str) -> str:
    limited(len(string) + string.count(find) * (len(replace) - len(find)))
    return string.replace(find, replace)


def _case(string: str, mode: str) -> str:
    changes: dict[str, Callable[[str], str]] = {
        "UPPERCASE": str.upper,
        "lowercase": str.lower,
        "Capitalize": str.capitalize,
        "Title Case": str.title,
    }
    return str(_choice(changes, mode)(string))


def _trim(string: str, mode: str) -> str:
    trims: dict[str, Callable[[str], str]] = {
        "Both": str.strip,
        "Left": str.lstrip,
        "Right": str.rstrip,
    }
    return str(_choice(trims, mode)(string))


def _compare(string_a: str, string_b: str, mode: str, case_sensitive: bool) -> bool:
    comparisons: dict[str, Callable[[str, str], bool]] = {
        "Starts With": str.startswith,
        "Ends With": str.endswith,
        "Equal": str.__eq__,
    }
    if not case_sensitive:
        string_a, string_b = string_a.lower(), string_b.lower()
    return bool(_choice(comparisons, mode)(string_a, string_b))


def _contains(string: str, substring: str, case_sensitive: bool) -> bool:
    return substring in string if case_sensitive else substring.lower() in string.lower()


def _choice(choices: Mapping[str, Any], mode: str) -> Any:
    if mode not in choices:
        raise ValueError(f"mode {mode!r} is none of {list(choices)}")
    return choices[mode]


def _texts(**more: str) -> Mapping[str, str]:
    return {"texts": STRING, **more}


FUNCTIONS: Final[Mapping[str, TextFunction]] = MappingProxyType(
    {
        "concatenate": TextFunction(
            args={"string_a": STRING, "string_b": STRING, "delimiter": STRING},
            gives=STRING,
            run=_concatenate,
        ),
        "substring": TextFunction(
            args={"string": STRING, "start": INT, "end": INT},
            gives=STRING,
            run=lambda string, start, end: string[start:end],
        ),
        "length": TextFunction(args={"string": STRING}, gives=INT, run=lambda string: len(string)),
        "case": TextFunction(args={"string": STRING, "mode": STRING}, gives=STRING, run=_case),
        "trim": TextFunction(args={"string": STRING, "mode": STRING}, gives=STRING, run=_trim),
        "replace": TextFunction(
            args={"string": STRING, "find": STRING, "replace": STRING}, gives=STRING, run=_replace
        ),
        "contains": TextFunction(
            args={"string": STRING, "substring": STRING, "case_sensitive": BOOLEAN},
            gives=BOOLEAN,
            run=_contains,
        ),
        "compare": TextFunction(
            args={
                "string_a": STRING,
                "string_b": STRING,
                "mode": STRING,
                "case_sensitive": BOOLEAN,
            },
            gives=BOOLEAN,
            run=_compare,
        ),
        "prefix": TextFunction(
            args=_texts(prefix=STRING),
            gives=STRING,
            run=lambda texts, prefix: _concatenate(prefix, texts, ""),
        ),
        "suffix": TextFunction(
            args=_texts(suffix=STRING),
            gives=STRING,
            run=lambda texts, suffix: _concatenate(texts, suffix, ""),
        ),
        "replace_in": TextFunction(
            args=_texts(find=STRING, replace=STRING),
            gives=STRING,
            run=lambda texts, find, replace: _replace(texts, find, replace),
        ),
        "strip": TextFunction(args=_texts(), gives=STRING, run=lambda texts: texts.strip()),
        "lower": TextFunction(args=_texts(), gives=STRING, run=lambda texts: texts.lower()),
        "upper": TextFunction(args=_texts(), gives=STRING, run=lambda texts: texts.upper()),
        "truncate": TextFunction(
            args=_texts(max_length=INT),
            gives=STRING,
            run=lambda texts, max_length: texts[:max_length],
        ),
    }
)
