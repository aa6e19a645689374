"""What the demo model must be able to do, as tables of numbers and limits.

Each check asks for pictures, looks at their pixels and gives rows; prompts and seeds are those of
no training scene.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from ..captions import phrase
from ..inversion import STAND_IN
from ..rendering import Pixels, render, render_hint
from ..scenes import (
    BACKGROUNDS,
    COLOURS,
    PAINTS,
    PLACES,
    PLAIN_BACKGROUNDS,
    RADII,
    SHAPES,
    UNNAMED,
    Scene,
    draw_scene,
    single,
)
from . import looks
from .silhouettes import shape_of
from .studio import CFG, Prompt, prompt

Draw = Callable[[Sequence[Prompt]], Awaitable[list[Pixels]]]

CHOICE_SEED: Final = 20261201  # which prompts are tried
NUM_PROMPTS: Final = 48
PER_PROMPT: Final = 2  # pictures, each from noise of its own
FIRST_SEED: Final = 17000
NUM_HINTS: Final = 16
HINT_SEEDS: Final = range(500_000, 600_000)  # training scenes have seeds from a million on
STRENGTHS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
STYLES: Final = {
    "ink": ("nodeloom-shapes-ink.safetensors", looks.ink),
    "sepia": ("nodeloom-shapes-sepia.safetensors", looks.brownness),
}
EMBEDDED: Final = f"embedding:{UNNAMED}-thing"

Asked = tuple[str, str, str]  # shape, colour, background


@dataclass(slots=True, frozen=True)
class Row:
    """One measured number and its limit; `is_least`: the number may not be smaller."""

    name: str
    value: float
    limit: float | None = None
    is_least: bool = True

    @property
    def is_met(self) -> bool:
        """Whether the limit holds; a number without one is for information."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.is_least else self.value < self.limit


@dataclass(slots=True)
class Findings:
    """The rows of all checks, and pictures for the contact sheets by sheet."""

    rows: list[Row] = field(default_factory=list)
    sheets: dict[str, list[Pixels]] = field(default_factory=dict)


def asked_for() -> list[Asked]:
    """Prompts of one thing each, chosen by a seed among all shapes, colours and backgrounds."""
    everything = [(s, c, b) for s in SHAPES for c in COLOURS for b in BACKGROUNDS]
    order = np.random.default_rng(CHOICE_SEED).permutation(len(everything))
    return [everything[int(index)] for index in order[:NUM_PROMPTS]]


def check_classifier(found: Findings) -> None:
    """The judges themselves, on drawn pictures."""
    rng = np.random.default_rng(CHOICE_SEED)
    right = {"colour": 0, "shape": 0}
    drawn = [(s, c, b) for s in SHAPES for c in PAINTS for b in BACKGROUNDS]
    for shape, colour, background in drawn:
        size = list(RADII)[int(rng.integers(len(RADII)))]
        place = "centre" if size == "big" else list(PLACES)[int(rng.integers(len(PLACES)))]
        seed = int(rng.integers(1 << 30))
        seen = _seen(render(single(shape, colour, background, size=size, place=place, seed=seed)))
        right["shape"] += seen[0] == shape
        right["colour"] += seen[1] == colour
    for what, count in right.items():
        found.rows.append(Row(f"drawn pictures: {what} is recognised", count / len(drawn), 0.99))


async def check_prompts(draw: Draw, found: Findings) -> None:
    """Colours and shapes as prompts say, with guidance and without."""
    asked = [each for each in asked_for() for _ in range(PER_PROMPT)]
    seeds = range(FIRST_SEED, FIRST_SEED + len(asked))
    shares: dict[float, float] = {}
    for cfg in (CFG, 1.0):
        texts = zip(asked, seeds, strict=True)
        pictures = await draw([prompt(phrase(*each), seed, cfg=cfg) for each, seed in texts])
        seen = [_seen(pixels) for pixels in pictures]
        colours = [s[1] == a[1] for s, a in zip(seen, asked, strict=True)]
        shapes = [s[0] == a[0] for s, a in zip(seen, asked, strict=True)]
        shares[cfg] = float(np.mean(colours))
        found.rows += [
            Row(f"CFG {cfg:g}: colour", shares[cfg], 0.95 if cfg == CFG else None),
            Row(f"CFG {cfg:g}: shape", float(np.mean(shapes)), 0.85 if cfg == CFG else None),
        ]
        found.sheets[f"cfg-{cfg:g}"] = pictures[::PER_PROMPT]
    gain = shares[CFG] - shares[1.0]
    found.rows.append(Row("colour: what guidance adds", gain, 0.10))


async def check_controlnet(draw: Draw, found: Findings, input_folder: Path) -> None:
    """Edges follow the hint; without it they don't."""
    scenes = _hinted_scenes()
    prompts: list[Prompt] = []
    hints = [render_hint(scene) for scene in scenes]
    for index, (scene, hint) in enumerate(zip(scenes, hints, strict=True)):
        name = f"hint-{index}.png"
        Image.fromarray(hint).save(input_folder / name)
        thing = scene.things[0]
        text = phrase(thing.shape, thing.colour, scene.background)
        prompts += [prompt(text, 8000 + index, hint=name), prompt(text, 8000 + index)]
    pictures = await draw(prompts)
    lines = [looks.line(hint) for hint in hints]
    overlaps = [
        [looks.overlap(looks.edges(p), line) for p, line in zip(some, lines, strict=True)]
        for some in (pictures[::2], pictures[1::2])
    ]
    found.rows += [
        Row("ControlNet: overlap of edges and hint", float(np.mean(overlaps[0])), 0.5),
        Row("without it", float(np.mean(overlaps[1])), 0.15, is_least=False),
    ]
    found.sheets["controlnet"] = [
        p for trio in zip(hints, pictures[::2], pictures[1::2], strict=True) for p in trio
    ][:24]


async def check_loras(draw: Draw, found: Findings) -> None:
    """A style's measure grows with its LoRA's strength; at 0 the picture is the base's."""
    asked = [("star", "yellow", "white"), ("heart", "red", "grey"), ("square", "blue", "white")]
    asked += [("circle", "green", "white"), ("cross", "purple", "grey")]
    seeds = [9000 + index for index in range(len(asked))]
    texts = [(phrase(*each), seed) for each, seed in zip(asked, seeds, strict=True)]
    base = await draw([prompt(text, seed) for text, seed in texts])
    for style, (file, measure) in STYLES.items():
        columns = [
            await draw([prompt(text, seed, loras=[(file, strength)]) for text, seed in texts])
            for strength in STRENGTHS
        ]
        means = [float(np.mean([measure(p) for p in column])) for column in columns]
        steps = [after - before for before, after in pairwise(means)]
        same = np.mean([np.array_equal(a, b) for a, b in zip(base, columns[0], strict=True)])
        found.rows += [
            Row(f"LoRA {style}: steps of strength that add to its measure", _share(steps), 1.0),
            Row(f"LoRA {style}: strength 0 gives the base's picture", float(same), 1.0),
        ]
        found.sheets[f"lora-{style}"] = [p for row in zip(*columns, strict=True) for p in row]


async def check_embedding(draw: Draw, found: Findings) -> None:
    """The textual inversion's colour, which no caption named."""
    asked = [(shape, b) for shape in SHAPES for b in ("white", "grey", "meadow")]
    prompts = [
        prompt(phrase(s, STAND_IN, b).replace(STAND_IN, EMBEDDED), 9500 + index)
        for index, (s, b) in enumerate(asked)
    ]
    pictures = await draw(prompts)
    share = float(np.mean([_seen(p)[1] == UNNAMED for p in pictures]))
    found.rows.append(Row(f"embedding: {UNNAMED}", share, 0.75))
    found.sheets["embedding"] = pictures[:12]


def _seen(pixels: Pixels) -> tuple[str | None, str | None]:
    """Shape and colour of what is in a picture."""
    seen = looks.foreground(pixels)
    return (None, None) if seen is None else (shape_of(seen[1]), seen[0])


def _hinted_scenes() -> list[Scene]:
    """Things of any size, angle and place, where nothing but the thing has edges."""
    scenes = (draw_scene(seed, anywhere=True) for seed in HINT_SEEDS)
    plain = (scene for scene in scenes if scene.background in PLAIN_BACKGROUNDS)
    return [scene for scene, _ in zip(plain, range(NUM_HINTS), strict=False)]


def _share(steps: Sequence[float]) -> float:
    return float(np.mean([step > 0.0 for step in steps]))
