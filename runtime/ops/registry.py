"""Which function is the body of an op. A family's module is imported when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, cast

from ..errors import NodeFailed
from .base import OpBody

_MODULES: Final[Mapping[str, str]] = {
    "text_encode": "text",
    "empty_latent": "sampling",
    "sample_begin": "sampling",
    "denoise": "sampling",
    "sample_end": "sampling",
    "vae_decode": "latent",
    "vae_encode": "latent",
    "load_image": "image",
    "image_scale": "image",
    "image_size": "image",
    "empty_image": "image",
    "save_image": "output",
}

OPS: Final = frozenset(_MODULES)


def body(op: str) -> OpBody:
    """The body of `op`. Raises: NodeFailed: this build has no such op."""
    module = _MODULES.get(op)
    if module is None:
        raise NodeFailed(f"this executor knows no op {op!r}", op=op)
    return cast(OpBody, getattr(import_module(f".{module}", __package__), op))
