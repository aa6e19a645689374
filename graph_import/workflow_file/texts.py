"""Texts that are rewritten when a prompt is made: alternatives by chance, names of files.

Source: spec importer-rules.md, section 6.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

Choose = Callable[[int], int]  # a number below the given one
_Pieces = list["str | _Pieces"]  # a text; joined once, as groups may nest deeply
Date = Callable[[str], str]  # the time now in a pattern such as yyyy-MM-dd

_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_ESCAPED: Final = "{}|"
_PLACEHOLDER: Final = re.compile(r"%([^%]+)%")
_ILLEGAL: Final = re.compile(r'[/?<>\\:*|"\x00-\x1f\x7f]')

SAVERS: Final = frozenset(
    {"SaveImage", "SaveAnimatedWEBP", "SaveAnimatedPNG", "SaveWEBM", "SaveVideo", "SaveAudio"}
    | {"SaveAudioMP3", "SaveAudioOpus", "SaveSVGNode", "SaveGLB", "SaveLatent", "CLIPSave"}
    | {"VAESave", "ModelSave", "LoraSave"}
)


def chosen(text: str, choose: Choose) -> str:
    """`text` without comments, and with one alternative of each `{a|b}`."""
    text = _COMMENT.sub("", text)
    open_groups: list[list[_Pieces]] = []  # the alternatives read so far, the last one unfinished
    parts: list[_Pieces] = [[]]
    place = 0
    while place < len(text):
        character = text[place]
        place += 1
        if character == "\\" and place < len(text) and text[place] in _ESCAPED:
            parts[-1].append(text[place])
            place += 1
        elif character == "{":
            open_groups.append(parts)
            parts = [[]]
        elif character == "|" and open_groups:
            parts.append([])
        elif character == "}" and open_groups:
            parts = _close(open_groups, parts, choose)
        else:
            end = _next_special(text, place)
            parts[-1].append(text[place - 1 : end])
            place = end
    while open_groups:
        parts = _close(open_groups, parts, choose)
    return _joined(parts[0])


def file_name(text: str, date: Date | None, values: Mapping[tuple[str, str], object]) -> str:
    """`text` with `%date:FORMAT%` and `%NODE.widget%` filled in; what is unknown stays.

    Args:
        date: the time now in a pattern; None: dates stay.
        values: what was typed in, by (name of the node, widget).
    """

    def filled(found: re.Match[str]) -> str:
        inner = found.group(1)
        if inner.startswith("date:") and date is not None:
            return date(inner.removeprefix("date:"))
        node, _, widget = inner.partition(".")
        value = values.get((node, widget))
        return found.group() if value is None else _ILLEGAL.sub("_", str(value))

    return _PLACEHOLDER.sub(filled, text)


def _close(open_groups: list[list[_Pieces]], parts: list[_Pieces], choose: Choose) -> list[_Pieces]:
    outer = open_groups.pop()
    outer[-1].append(parts[choose(len(parts)) if len(parts) > 1 else 0])
    return outer


def _joined(pieces: _Pieces) -> str:
    """The text of nested pieces, however deep."""
    texts: list[str] = []
    waiting = [iter(pieces)]
    while waiting:
        piece = next(waiting[-1], None)
        if piece is None:
            waiting.pop()
        elif isinstance(piece, str):
            texts.append(piece)
        else:
            waiting.append(iter(piece))
    return "".join(texts)


def _next_special(text: str, start: int) -> int:
    for place in range(start, len(text)):
        if text[place] in "\\{|}":
            return place
    return len(text)
