"""Example workflows in ComfyUI's API format, as package data: `txt2img.json`, `img2img.json`.

Both run on the tiny checkpoint that `nodeloom demo` writes; `img2img.json` reads `example.png` from
the input folder. What lives here is data, and the one function that finds it.
"""

from __future__ import annotations

from pathlib import Path

if __name__ != "nodeloom.workflows":
    raise ImportError(
        f"this package is nodeloom.workflows; it must not be imported as {__name__!r}"
    )


def example(name: str) -> Path:
    """The file of the example called `name`, such as `txt2img`. Raises: FileNotFoundError."""
    path = Path(__file__).parent / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.json")))
        raise FileNotFoundError(f"no example workflow {name!r}; there are {known}")
    return path
