"""Scenes of coloured shapes: what is in a picture, drawn by a seed. Words are in `captions.py`.

    scene = draw_scene(seed)       # a Scene: background, things, and how they are arranged
    pixels = render(scene)         # rendering.py: uint8 [128, 128, 3], anti-aliased
    hint = render_hint(scene)      # uint8 [128, 128, 3]: white contours of the things on black
    mask = render_mask(scene)      # bool [128, 128]: where the things are
    text = caption(scene, seed)    # captions.py: "a red circle on a white background"

A `Scene` may also be made by hand: `single("heart", "red", "meadow")`. Everything is a function of
its arguments: the same seed gives the same scene and the same bytes. Rendering takes a millisecond.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
import numpy as np

SIZE: Final = 128  # pixels, both sides

Rgb = tuple[int, int, int]

# The colours that captions name. Far from one another and from every background.
COLOURS: Final[dict[str, Rgb]] = {
    "red": (225, 35, 40),
    "orange": (255, 140, 15),
    "yellow": (250, 225, 40),
    "green": (20, 150, 60),
    "blue": (35, 75, 225),
    "purple": (130, 50, 180),
    "pink": (255, 130, 195),
}
# Drawn but never named: the textual inversion finds the word for it.
UNNAMED: Final = "turquoise"
PAINTS: Final[dict[str, Rgb]] = {**COLOURS, UNNAMED: (20, 205, 195)}
SHAPES: Final = ("circle", "square", "triangle", "star", "heart", "cross")
PLAIN_BACKGROUNDS: Final[dict[str, Rgb]] = {
    "white": (250, 250, 250),
    "grey": (150, 150, 150),
    "black": (12, 12, 12),
}
VIEWS: Final = ("meadow", "sea", "night", "desert")
BACKGROUNDS: Final = (*PLAIN_BACKGROUNDS, *VIEWS)
# Radius of the circle around a thing, in pixels, from and to.
RADII: Final[dict[str, tuple[float, float]]] = {
    "small": (13.0, 16.0),
    "normal": (25.0, 31.0),
    "big": (42.0, 49.0),
}
# Centre of a single thing, in pixels.
PLACES: Final[dict[str, tuple[float, float]]] = {
    "centre": (64.0, 64.0),
    "left": (33.0, 64.0),
    "right": (95.0, 64.0),
    "top": (64.0, 34.0),
    "bottom": (64.0, 94.0),
}
JITTER: Final = 5.0


class Layout(StrEnum):
    """How the things of a scene are arranged."""

    EMPTY = "empty"
    SINGLE = "single"
    ROW = "row"  # two or three of a kind
    PAIR = "pair"  # two different ones; the first is on the left


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """One shape: its centre and radius in pixels, turned by `angle` degrees."""

    shape: str
    colour: str
    x: float
    y: float
    radius: float
    angle: float = 0.0


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A picture's content. `size` and `place` are words of RADII and PLACES for a single thing.

    `detail` seeds what no caption tells: where the horizon, a cloud or the stars are.
    """

    layout: Layout
    background: str
    things: tuple[Thing, ...]
    size: str = "normal"
    place: str = "centre"
    detail: int = 0


def draw_scene(seed: int, *, anywhere: bool = False) -> Scene:
    """The scene of this seed.

    Args:
        anywhere: one thing of any size and angle at any place: nothing but a hint tells.
    """
    rng = np.random.default_rng((seed, int(anywhere)))
    background = _pick(rng, BACKGROUNDS)
    if anywhere:
        return _anywhere(rng, background)
    chance = rng.random()
    if chance < 0.03:
        return Scene(layout=Layout.EMPTY, background=background, things=(), detail=_detail(rng))
    if chance < 0.17:
        return _row(rng, background)
    if chance < 0.35:
        return _pair(rng, background)
    return _single(rng, background)


def single(
    shape: str,
    colour: str,
    background: str,
    *,
    size: str = "normal",
    place: str = "centre",
    seed: int = 0,
) -> Scene:
    """A scene of one thing; the seed decides what the words leave open."""
    rng = np.random.default_rng((seed, 2))
    low, high = RADII[size]
    x, y = PLACES[place]
    thing = Thing(
        shape=shape,
        colour=colour,
        x=x + rng.uniform(-JITTER, JITTER),
        y=y + rng.uniform(-JITTER, JITTER),
        radius=rng.uniform(low, high),
    )
    return Scene(
        layout=Layout.SINGLE,
        background=background,
        things=(thing,),
        size=size,
        place=place,
        detail=_detail(rng),
    )


def _single(rng: np.random.Generator, background: str) -> Scene:
    """Half of them say nothing of size and place; small things alone may be anywhere."""
    size, place = "normal", "centre"
    chance = rng.random()
    if chance < 0.2:
        size = _pick(rng, ("small", "big"))
    elif chance < 0.4:
        place = _pick(rng, ("left", "right", "top", "bottom"))
    elif chance < 0.5:
        size, place = "small", _pick(rng, ("left", "right", "top", "bottom"))
    paints = tuple(PAINTS)
    return single(
        _pick(rng, SHAPES),
        _pick(rng, paints),
        background,
        size=size,
        place=place,
        seed=_detail(rng),
    )


def _row(rng: np.random.Generator, background: str) -> Scene:
    num_things = int(rng.integers(2, 4))
    shape, colour = _pick(rng, SHAPES), _pick(rng, tuple(COLOURS))
    low, high = {2: (19.0, 24.0), 3: (15.0, 18.0)}[num_things]
    radius, y = rng.uniform(low, high), 64.0 + rng.uniform(-JITTER, JITTER)
    things = tuple(
        Thing(
            shape=shape,
            colour=colour,
            x=x + rng.uniform(-2.0, 2.0),
            y=y + rng.uniform(-2.0, 2.0),
            radius=radius,
        )
        for x in {2: (36.0, 92.0), 3: (24.0, 64.0, 104.0)}[num_things]
    )
    return Scene(layout=Layout.ROW, background=background, things=things, detail=_detail(rng))


def _pair(rng: np.random.Generator, background: str) -> Scene:
    colours = rng.permutation(list(COLOURS))[:2]
    radius, y = rng.uniform(19.0, 24.0), 64.0 + rng.uniform(-JITTER, JITTER)
    things = tuple(
        Thing(
            shape=_pick(rng, SHAPES),
            colour=str(colour),
            x=x + rng.uniform(-3.0, 3.0),
            y=y + rng.uniform(-3.0, 3.0),
            radius=radius,
        )
        for x, colour in zip((36.0, 92.0), colours, strict=True)
    )
    return Scene(layout=Layout.PAIR, background=background, things=things, detail=_detail(rng))


def _anywhere(rng: np.random.Generator, background: str) -> Scene:
    radius = rng.uniform(15.0, 46.0)
    room = max(0.0, SIZE / 2 - radius - 4.0)
    thing = Thing(
        shape=_pick(rng, SHAPES),
        colour=_pick(rng, tuple(COLOURS)),
        x=SIZE / 2 + rng.uniform(-room, room),
        y=SIZE / 2 + rng.uniform(-room, room),
        radius=radius,
        angle=rng.uniform(0.0, 360.0) if rng.random() < 0.5 else 0.0,
    )
    return Scene(layout=Layout.SINGLE, background=background, things=(thing,), detail=_detail(rng))


def _pick(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


def _detail(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 31))
