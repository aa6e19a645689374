"""Weights and embeddings in a text: `(cat:1.2)`, `((cat))`, `\\(`, `embedding:name`.

Parentheses multiply the weight by 1.1; a number after the group's last colon replaces it, and every
weight outside. What can't be a group is text. `\\(` is a parenthesis that is meant.

`embedding:name` stands for the vectors of a file; it counts where a segment begins, or after a
space or line break, which belongs to it. Source: ComfyUI 0.8.0, `prompts.json` of the goldens.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

PARENTHESES_WEIGHT: Final = 1.1
MAX_NESTING: Final = 32  # groups that lie deeper are text

_PARENTHESIS: Final = re.compile(r"\\[()]|[()]")  # an escaped one is found whole, and passed over
_ESCAPED: Final = re.compile(r"\\([()])")
_EMBEDDING: Final = re.compile(r"(?:\A|[ \n])embedding:")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of text under one weight, without its parentheses and escapes."""

    text: str
    weight: float


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Words of a segment, or the name of an embedding, which may end in commas of the text."""

    text: str
    is_embedding: bool


def parse_weights(text: str) -> list[Segment]:
    """The segments of `text` in order; none for an empty text."""
    segments: list[Segment] = []
    open_pieces = [(piece, 1.0, 0) for piece in reversed(_split(text))]
    while open_pieces:
        piece, weight, depth = open_pieces.pop()
        if depth == MAX_NESTING or not _is_group(piece):
            segments.append(Segment(text=_ESCAPED.sub(r"\1", piece), weight=weight))
            continue
        inner, weight = _weigh_group(piece, weight)
        open_pieces += [(part, weight, depth + 1) for part in reversed(_split(inner))]
    return segments


def unweighted(text: str) -> Segment:
    """The whole text as it is read where parentheses are no weights; escapes go all the same."""
    return Segment(text=_ESCAPED.sub(r"\1", text), weight=1.0)


def before_embeddings(text: str) -> list[str]:
    """The text cut before each `embedding:`, without the space or line break that belongs to it.

    For encoders that take no embeddings: to them the name is words.
    """
    before, *others = _EMBEDDING.split(text)
    return [piece for piece in (before, *(f"embedding:{other}" for other in others)) if piece]


def split_embeddings(text: str) -> list[Part]:
    """The parts of a segment's text in order."""
    before, *others = _EMBEDDING.split(text)
    parts = [Part(text=before, is_embedding=False)] if before else []
    for other in others:
        first, *more = other.split(maxsplit=1) or [""]
        parts.append(Part(text=first, is_embedding=True))
        parts += [Part(text=rest, is_embedding=False) for rest in more]
    return parts


def embedding_names(text: str) -> list[str]:
    """The names of all embeddings in a text with weights, as they are written, each once."""
    if "embedding:" not in text:
        return []
    parts = [part for segment in parse_weights(text) for part in split_embeddings(segment.text)]
    return list(dict.fromkeys(part.text for part in parts if part.is_embedding and part.text))


def without_commas(name: str) -> tuple[str, str]:
    """An embedding's name without the commas that end it, and these commas."""
    stripped = name.rstrip(",")
    return stripped, name[len(stripped) :]


def _split(text: str) -> list[str]:
    """Cut before each outermost opening parenthesis and after its closing one."""
    pieces: list[str] = []
    start = depth = 0
    for found in _PARENTHESIS.finditer(text):
        if found.group() == "(":
            if depth == 0 and found.start() > start:
                pieces.append(text[start : found.start()])
                start = found.start()
            depth += 1
        elif found.group() == ")":
            depth -= 1
            if depth == 0:
                pieces.append(text[start : found.end()])
                start = found.end()
    if start < len(text):
        pieces.append(text[start:])
    return pieces


def _is_group(piece: str) -> bool:
    return (
        len(piece) >= 2
        and piece.startswith("(")
        and piece.endswith(")")
        and not piece.endswith("\\)")
    )


def _weigh_group(piece: str, outer_weight: float) -> tuple[str, float]:
    """What stands inside the group `piece`, and its weight."""
    inner = piece[1:-1]
    before, colon, after = inner.rpartition(":")
    if colon and before:
        try:
            return before, float(after)
        except ValueError:
            pass  # words after the colon: it belongs to the text
    return inner, outer_weight * PARENTHESES_WEIGHT
