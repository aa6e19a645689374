"""The curves of the runs as one SVG picture, for the docs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

Points = list[tuple[float, float]]

STAGES: Final = ("vae", "decoder", "unet", "controlnet", "lora-ink", "lora-sepia", "embedding")
WIDTH: Final = 220.0
HEIGHT: Final = 120.0
MARGIN: Final = 34.0
COLUMNS: Final = 4


def read_curve(path: Path) -> Points:
    """Steps and losses of a run's CSV file."""
    lines = path.read_text("utf-8").splitlines()[1:]
    return [(float(step), float(loss)) for step, loss, *_ in (line.split(",") for line in lines)]


def draw_curves(folder: Path) -> str:
    """An SVG document with a small chart for each run in `folder` that there is."""
    found = [stage for stage in STAGES if (folder / f"{stage}.csv").exists()]
    charts = [
        _chart(stage, read_curve(folder / f"{stage}.csv"), *_place(index))
        for index, stage in enumerate(found)
    ]
    width = COLUMNS * (WIDTH + MARGIN) + MARGIN
    height = math.ceil(len(found) / COLUMNS) * (HEIGHT + 2 * MARGIN)
    style = "font-family='sans-serif' font-size='11' fill='#333'"
    box = f"0 0 {width:.0f} {height:.0f}"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='{box}' {style}>"
    return "\n".join([head, f"<rect width='{width}' height='{height}' fill='white'/>", *charts]) + (
        "\n</svg>\n"
    )


def _place(index: int) -> tuple[float, float]:
    row, column = divmod(index, COLUMNS)
    return MARGIN + column * (WIDTH + MARGIN), MARGIN + row * (HEIGHT + 2 * MARGIN)


def _chart(title: str, points: Points, left: float, top: float) -> str:
    """One run: the loss on a logarithmic scale over the steps."""
    steps = [step for step, _ in points]
    logs = [math.log(loss) for _, loss in points]
    low, high = min(logs), max(logs)
    spread = (high - low) or 1.0
    line = " ".join(
        f"{left + WIDTH * step / steps[-1]:.1f},{top + HEIGHT * (high - value) / spread:.1f}"
        for step, value in zip(steps, logs, strict=True)
    )
    bottom = top + HEIGHT
    return "\n".join(
        [
            f"<text x='{left}' y='{top - 8}' font-weight='bold'>{title}</text>",
            f"<path d='M{left},{top}V{bottom}H{left + WIDTH}' fill='none' stroke='#999'/>",
            f"<polyline points='{line}' fill='none' stroke='#2450c8' stroke-width='1.5'/>",
            f"<text x='{left + 4}' y='{top + 10}'>{math.exp(high):.3g}</text>",
            f"<text x='{left + 4}' y='{bottom - 4}'>{math.exp(low):.3g}</text>",
            f"<text x='{left + WIDTH}' y='{bottom + 14}' text-anchor='end'>{steps[-1]:.0f}</text>",
        ]
    )
