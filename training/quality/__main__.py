"""`python -m training.quality`: draw with the demo model, look at the pixels, compare with limits.

It starts a server of its own on the models that ship. Exit status 1: a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from nodeloom.server.cli.child_server import child_server
from nodeloom.server.client import ServerClient
from PIL import Image

from ..rendering import Pixels
from .checks import (
    STRENGTHS,
    Findings,
    Row,
    check_classifier,
    check_controlnet,
    check_embedding,
    check_loras,
    check_prompts,
)
from .studio import Prompt, draw

EXECUTORS: Final = 2
COLUMNS: Final = {"lora-ink": len(STRENGTHS), "lora-sepia": len(STRENGTHS), "embedding": 6}
USUAL_COLUMNS: Final = 12


def main() -> int:
    """Run all checks; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m training.quality", description=__doc__)
    parser.add_argument("--sheets", type=Path, help="folder for contact sheets")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nodeloom-quality-") as name:
        found, seconds = asyncio.run(_look(Path(name)))
    found.rows.append(Row("seconds a picture, two at once", seconds))
    print(_table(found.rows))
    if args.sheets is not None:
        args.sheets.mkdir(parents=True, exist_ok=True)
        for name, pictures in found.sheets.items():
            sheet = _sheet(pictures, COLUMNS.get(name, USUAL_COLUMNS))
            sheet.save(args.sheets / f"{name}.png", optimize=True)
    missed = [row.name for row in found.rows if not row.is_met]
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


async def _look(base: Path) -> tuple[Findings, float]:
    """What all checks found, and seconds a picture."""
    found, num_pictures = Findings(), 0
    check_classifier(found)
    flags = ("--demo-models", "on", "--threads", "1", "--strict")
    async with (
        child_server(base, executors=EXECUTORS, flags=flags) as address,
        ServerClient(address) as client,
    ):
        started = time.monotonic()

        async def ask(prompts: Sequence[Prompt]) -> list[Pixels]:
            nonlocal num_pictures
            num_pictures += len(prompts)
            return await draw(client, prompts, base / "drawn")

        await check_prompts(ask, found)
        await check_controlnet(ask, found, base / "input")
        await check_loras(ask, found)
        await check_embedding(ask, found)
        return found, (time.monotonic() - started) / num_pictures


def _table(rows: Sequence[Row]) -> str:
    lines = [f"{'':48} {'measured':>9} {'limit':>8}"]
    for row in rows:
        bound = "" if row.limit is None else f"{'>=' if row.is_least else '<'} {row.limit:g}"
        mark = "" if row.is_met else "  missed"
        lines.append(f"{row.name:48} {row.value:9.3f} {bound:>8}{mark}")
    return "\n".join(lines)


def _sheet(pictures: Sequence[Pixels], columns: int) -> Image.Image:
    """The pictures in rows."""
    blank = np.zeros_like(pictures[0])
    rows = [
        [*pictures[start : start + columns], *[blank] * columns][:columns]
        for start in range(0, len(pictures), columns)
    ]
    return Image.fromarray(np.concatenate([np.concatenate(row, axis=1) for row in rows]))


if __name__ == "__main__":
    sys.exit(main())
