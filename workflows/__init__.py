"""Example workflows in ComfyUI's API format, as package data: `txt2img.json`, `img2img.json`.

Both run on the tiny checkpoint that `nodeloom demo` writes; `img2img.json` reads `example.png` from
the input folder, which the demo puts there.
"""

if __name__ != "nodeloom.workflows":
    raise ImportError(
        f"this package is nodeloom.workflows; it must not be imported as {__name__!r}"
    )
