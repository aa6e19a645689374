"""Pictures of scenes: pixels, contours and masks. Drawn four times as large, then averaged.

What is drawn is in `scenes.py`; the styles that the LoRAs learn are here.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from .scenes import PAINTS, PLAIN_BACKGROUNDS, SIZE, Rgb, Scene, Thing

Pixels = NDArray[np.uint8]
Points = list[tuple[float, float]]

SCALE: Final = 4
CONTOUR_WIDTH: Final = 3.0  # pixels, of a hint
INK_WIDTH: Final = 7.0  # pixels, in the style of ink
INK: Final[Rgb] = (0, 0, 0)
# Luminance (ITU-R BT.601) times these, plus what lifts black: brown for black, cream for white.
SEPIA_DARK: Final = (45.0, 28.0, 12.0)
SEPIA_LIGHT: Final = (250.0, 226.0, 178.0)


class Style(StrEnum):
    """How a scene is painted."""

    PLAIN = "plain"
    INK = "ink"  # a thick black contour around every thing
    SEPIA = "sepia"  # an old photograph's brown tones


def render(scene: Scene, style: Style = Style.PLAIN) -> Pixels:
    """The picture, uint8 [128, 128, 3]."""
    image = Image.new("RGB", (SIZE * SCALE, SIZE * SCALE))
    draw = ImageDraw.Draw(image)
    _background(draw, scene)
    for thing in scene.things:
        points = outline(thing)
        draw.polygon(points, fill=PAINTS[thing.colour])
        if style is Style.INK:
            _contour(draw, points, INK_WIDTH, INK)
    pixels = np.asarray(image.reduce(SCALE))
    return _sepia(pixels) if style is Style.SEPIA else pixels


def render_hint(scene: Scene) -> Pixels:
    """White contours of the things on black, uint8 [128, 128, 3]."""
    image = Image.new("L", (SIZE * SCALE, SIZE * SCALE))
    draw = ImageDraw.Draw(image)
    for thing in scene.things:
        _contour(draw, outline(thing), CONTOUR_WIDTH, 255)
    return np.repeat(np.asarray(image.reduce(SCALE))[..., None], 3, axis=2)


def render_mask(scene: Scene) -> NDArray[np.bool_]:
    """Where the things are, [128, 128]: pixels that are covered by more than half."""
    image = Image.new("L", (SIZE * SCALE, SIZE * SCALE))
    draw = ImageDraw.Draw(image)
    for thing in scene.things:
        draw.polygon(outline(thing), fill=255)
    return np.asarray(image.reduce(SCALE)) > 127


def outline(thing: Thing) -> Points:
    """The corners of a thing, in the coordinates of the large picture."""
    corners = _SHAPES[thing.shape]
    turn = math.radians(thing.angle)
    cos, sin = math.cos(turn), math.sin(turn)
    return [
        (
            SCALE * (thing.x + thing.radius * (cos * x - sin * y)),
            SCALE * (thing.y + thing.radius * (sin * x + cos * y)),
        )
        for x, y in corners
    ]


def _contour(draw: ImageDraw.ImageDraw, points: Points, width: float, colour: int | Rgb) -> None:
    """A closed line with round corners."""
    stroke = round(width * SCALE)
    draw.line([*points, points[0]], fill=colour, width=stroke)
    half = stroke / 2
    for x, y in points:
        draw.ellipse((x - half, y - half, x + half, y + half), fill=colour)


def _sepia(pixels: Pixels) -> Pixels:
    grey = (pixels @ np.array([0.299, 0.587, 0.114]))[..., None] / 255.0
    dark, light = np.array(SEPIA_DARK), np.array(SEPIA_LIGHT)
    toned: Pixels = np.round(dark + grey * (light - dark)).astype(np.uint8)
    return toned


def _background(draw: ImageDraw.ImageDraw, scene: Scene) -> None:
    whole = (0, 0, SIZE * SCALE, SIZE * SCALE)
    if scene.background in PLAIN_BACKGROUNDS:
        draw.rectangle(whole, fill=PLAIN_BACKGROUNDS[scene.background])
        return
    rng = np.random.default_rng((scene.detail, 3))
    match scene.background:
        case "meadow":
            _land(draw, rng, sky=(200, 228, 250), ground=(150, 200, 90))
            _cloud(draw, rng)
        case "sea":
            _land(draw, rng, sky=(228, 236, 244), ground=(95, 160, 190))
        case "night":
            draw.rectangle(whole, fill=(20, 22, 58))
            _night(draw, rng)
        case "desert":
            _dunes(draw, rng)
        case unknown:
            raise ValueError(f"there is no background {unknown}")


def _land(draw: ImageDraw.ImageDraw, rng: np.random.Generator, *, sky: Rgb, ground: Rgb) -> None:
    horizon = rng.uniform(68.0, 84.0) * SCALE
    draw.rectangle((0, 0, SIZE * SCALE, horizon), fill=sky)
    draw.rectangle((0, horizon, SIZE * SCALE, SIZE * SCALE), fill=ground)


def _cloud(draw: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    x, y = rng.uniform(16.0, 112.0), rng.uniform(12.0, 22.0)
    for dx, dy, radius in ((-9.0, 2.0, 6.0), (0.0, 0.0, 8.0), (9.0, 2.0, 6.0)):
        _disc(draw, x + dx, y + dy, radius, (255, 255, 255))


def _night(draw: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    for _ in range(9):
        x, y = rng.uniform(4.0, SIZE - 4.0, 2)
        _disc(draw, x, y, 1.3, (235, 235, 215))
    left = rng.random() < 0.5
    _disc(draw, 17.0 if left else SIZE - 17.0, rng.uniform(14.0, 20.0), 9.0, (240, 236, 205))


def _dunes(draw: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    draw.rectangle((0, 0, SIZE * SCALE, SIZE * SCALE), fill=(252, 240, 222))
    height, shift = rng.uniform(70.0, 82.0), rng.uniform(0.0, 2.0 * math.pi)
    crest = [
        (x * SCALE, SCALE * (height + 7.0 * math.sin(shift + x * math.pi / SIZE * 3.0)))
        for x in range(0, SIZE + 1, 4)
    ]
    corners = [(SIZE * SCALE, SIZE * SCALE), (0, SIZE * SCALE)]
    draw.polygon([*crest, *corners], fill=(216, 178, 122))


def _disc(draw: ImageDraw.ImageDraw, x: float, y: float, radius: float, colour: Rgb) -> None:
    box = (x - radius, y - radius, x + radius, y + radius)
    draw.ellipse(tuple(SCALE * side for side in box), fill=colour)


def _polygon(num_corners: int, inner: float | None = None, first: float = -90.0) -> Points:
    """Corners on the unit circle, from the top clockwise; with `inner` a star's."""
    count = num_corners if inner is None else 2 * num_corners
    radii = [1.0 if inner is None or index % 2 == 0 else inner for index in range(count)]
    angles = [math.radians(first + 360.0 * index / count) for index in range(count)]
    return [(r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]


def _heart() -> Points:
    """The curve 16 sin^3 t, 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t, in the unit circle."""
    points: Points = []
    for index in range(64):
        t = 2.0 * math.pi * index / 64
        x = 16.0 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 17.0, -(y + 2.5) / 17.0))
    return points


def _cross() -> Points:
    a, b = 0.34, 0.94
    quarter = [(a, -b), (a, -a), (b, -a)]
    points = quarter
    for _ in range(3):
        points = points + [(-y, x) for x, y in points[-3:]]
    return points


_SHAPES: Final[dict[str, Points]] = {
    "circle": _polygon(64),
    "square": [(0.8 * x, 0.8 * y) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))],
    "triangle": [(x, y + 0.2) for x, y in _polygon(3)],
    "star": _polygon(5, inner=0.42),
    "heart": _heart(),
    "cross": _cross(),
}
