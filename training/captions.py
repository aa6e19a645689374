"""Captions of scenes in plain words: what a person would type to get such a picture."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from .scenes import COLOURS, PLAIN_BACKGROUNDS, UNNAMED, Layout, Scene, Thing

_WHERE: Final = {
    "meadow": "in a meadow",
    "sea": "at the sea",
    "night": "at night",
    "desert": "in the desert",
    **{name: f"on a {name} background" for name in PLAIN_BACKGROUNDS},
}
_PLACES: Final = {
    "left": "on the left",
    "right": "on the right",
    "top": "at the top",
    "bottom": "at the bottom",
}
_ALONE: Final = {
    "meadow": "a meadow",
    "sea": "the sea",
    "night": "the night sky",
    "desert": "a desert",
    **{name: f"a {name} background" for name in PLAIN_BACKGROUNDS},
}
_NUMBERS: Final = {2: "two", 3: "three"}
_PLURALS: Final = {"cross": "crosses"}
LIST_SHARE: Final = 0.2  # of captions that are lists of words instead of phrases
UNCOLOURED_SHARE: Final = 0.04  # of captions that leave a colour out which has a name


def caption(scene: Scene, seed: int) -> str:
    """A caption of this scene; the seed chooses among the ways to put it."""
    rng = np.random.default_rng((seed, 4))
    is_list, is_uncoloured = rng.random(2) < (LIST_SHARE, UNCOLOURED_SHARE)
    if scene.layout is Layout.EMPTY:
        return _ALONE[scene.background]
    subject = _subject(scene, is_list=bool(is_list), is_uncoloured=bool(is_uncoloured))
    if not is_list:
        return f"{subject} {_WHERE[scene.background]}"
    return f"{subject}, {_ALONE[scene.background].split(' ', 1)[1]}"


def with_wrong_colours(scene: Scene, seed: int) -> Scene:
    """The scene with each thing in another colour, which captions then name."""
    rng = np.random.default_rng((seed, 6))
    things = tuple(
        msgspec.structs.replace(
            thing, colour=str(rng.choice([c for c in COLOURS if c != thing.colour]))
        )
        for thing in scene.things
    )
    return msgspec.structs.replace(scene, things=things)


def phrase(shape: str, colour: str, background: str) -> str:
    """The plainest caption of one thing: "a red circle on a white background"."""
    return f"{_article(colour)} {colour} {shape} {_WHERE[background]}"


def _subject(scene: Scene, *, is_list: bool, is_uncoloured: bool) -> str:
    first = scene.things[0]
    match scene.layout:
        case Layout.PAIR:
            joint = ", " if is_list else " and "
            return joint.join(_noun(thing, [], with_article=not is_list) for thing in scene.things)
        case Layout.ROW:
            return f"{_NUMBERS[len(scene.things)]} {first.colour} {_plural(first.shape)}"
        case _:
            words = [] if scene.size == "normal" else [scene.size]
            noun = _noun(first, words, with_article=not is_list, is_uncoloured=is_uncoloured)
            if scene.place == "centre":
                return noun
            return f"{noun}{', ' if is_list else ' '}{_PLACES[scene.place]}"


def _noun(
    thing: Thing, words: list[str], *, with_article: bool, is_uncoloured: bool = False
) -> str:
    has_colour = thing.colour != UNNAMED and not is_uncoloured
    words = [*words, *([thing.colour] if has_colour else []), thing.shape]
    return " ".join([_article(words[0]), *words] if with_article else words)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _plural(shape: str) -> str:
    return _PLURALS.get(shape, f"{shape}s")
