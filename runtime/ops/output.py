"""The body of the node that saves pictures as PNG, for SaveImage and PreviewImage."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256
from io import BytesIO
from typing import Final

import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ..errors import NodeFailed
from .arguments import argument, image_argument
from .base import OpCall, OpContext, OpResult
from .save_names import NamePattern, parse_prefix
from .saves import Save, save_once

OUTPUT_COMPRESS_LEVEL: Final = 4
TEMP_COMPRESS_LEVEL: Final = 1
MAX_KEYWORD_LENGTH: Final = 79
_TEMP_PREFIX: Final = "ComfyUI_temp_"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def save_image(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """images, filename_prefix, folder ("output" or "temp") -> no outputs, but names for the ui.

    Names in "temp" start with `ComfyUI_temp_` and five letters of the node's own. Run again for the
    same request and node, it gives the same names and saves nothing twice.

    Raises: NodeFailed: the prefix leaves the folder, metadata that PNG can't hold, no space.
    """
    return [_save(context, call) for call in calls]


def _save(context: OpContext, call: OpCall) -> OpResult:
    images = image_argument(call, "images")
    folder = argument(call, "folder", str)
    if folder not in ("output", "temp"):
        raise NodeFailed(f"pictures can't be saved to {folder!r}", input="folder")
    is_temp = folder == "temp"
    prefix = (
        _TEMP_PREFIX + _own_letters(call) if is_temp else argument(call, "filename_prefix", str)
    )
    chunks = texts_of(context, call)
    level = TEMP_COMPRESS_LEVEL if is_temp else OUTPUT_COMPRESS_LEVEL
    encoders = [partial(encode_png, image, chunks, level) for image in images]
    pattern = pattern_for(images, prefix, ".png")
    return OpResult(outputs=(), ui={"images": publish(context, call, folder, pattern, encoders)})


def pattern_for(images: torch.Tensor, prefix: str, suffix: str) -> NamePattern:
    """The names that pictures [B, H, W, C] are saved under now. Raises: NodeFailed."""
    height, width = images.shape[1:3]
    return parse_prefix(prefix, width, height, datetime.now(), suffix)


def publish(
    context: OpContext,
    call: OpCall,
    folder: str,
    pattern: NamePattern,
    encoders: Sequence[Callable[[], bytes]],
) -> list[dict[str, str]]:
    """Save a file per encoder to "output" or "temp", once; how the ui names them.

    Raises: NodeFailed: outside the folder, no space.
    """
    save = Save(
        request_id=call.request_id,
        node_id=call.node_id,
        root=context.folders.temp if folder == "temp" else context.folders.output,
        saves=context.folders.saves,
        check_cancelled=context.check_cancelled,
    )
    subfolder, names = save_once(save, pattern, encoders)
    return [{"filename": name, "subfolder": subfolder, "type": folder} for name in names]


def encode_png(image: torch.Tensor, chunks: Mapping[str, str], compress_level: int) -> bytes:
    """A picture [H, W, C] as PNG: clipped to 0 to 1, then cut (not rounded) to 8 bits.

    Args:
        chunks: keyword -> text of the file's text chunks.
    """
    information = PngInfo()
    for keyword, text in chunks.items():
        information.add_text(keyword, text)
    stream = BytesIO()
    eight_bit(image).save(stream, format="PNG", pnginfo=information, compress_level=compress_level)
    return stream.getvalue()


def eight_bit(image: torch.Tensor) -> Image.Image:
    """A picture [H, W, C], clipped to 0 to 1, then cut (not rounded) to 8 bits."""
    cut = (image * 255.0).clamp(0.0, 255.0).to(torch.uint8).squeeze(-1)
    return Image.fromarray(cut.numpy())


def texts_of(context: OpContext, call: OpCall) -> dict[str, str]:
    """What a file tells of its request: keyword -> text; nothing where that is switched off.

    `prompt`, and one per key of `extra_pnginfo`, as JSON in Python's usual spelling. Raises:
    NodeFailed: a key can't be a keyword.
    """
    return {} if context.is_metadata_disabled else _texts(call.hidden)


def _texts(hidden: Mapping[str, str]) -> dict[str, str]:
    chunks: dict[str, str] = {}
    if "prompt" in hidden:
        chunks["prompt"] = json.dumps(json.loads(hidden["prompt"]))
    extra = json.loads(hidden.get("extra_pnginfo", "null")) or {}
    if not isinstance(extra, dict):
        raise NodeFailed("extra_pnginfo must be an object")
    for key, value in extra.items():
        if not 1 <= len(key) <= MAX_KEYWORD_LENGTH or not _is_latin(key):
            raise NodeFailed(
                f"the extra_pnginfo key {key[:80]!r} can't be the keyword of a PNG chunk: "
                f"1 to {MAX_KEYWORD_LENGTH} printable Latin-1 characters"
            )
        chunks[key] = json.dumps(value)
    return chunks


def _is_latin(text: str) -> bool:
    return text.isprintable() and max(text) <= "\xff"


def _own_letters(call: OpCall) -> str:
    """Five letters that this node of this request always gets."""
    digest = sha256(f"{call.request_id}/{call.node_id}".encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])
