"""Symbolic model handles: what MODEL, CLIP and VAE sockets carry. Never tensors, never loaded here.

A loader node makes a `ModelRef`; LoRA nodes extend its patch set; sampling nodes set its options.
Source: architecture, sections 4 and 14 ("Identity", "Patches").
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

Scalar = bool | int | float | str | None

CLIP_LAYER = "clip_layer"  # option of a text encoder: which layer it gives, -1 is the last


class Role(StrEnum):
    """What a model does in a workflow."""

    DENOISER = "denoiser"
    TEXT_ENCODER = "text_encoder"
    VAE = "vae"
    CONTROLNET = "controlnet"
    UPSCALER = "upscaler"


class FileIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was when looked at: another size or time is another file."""

    path: str
    size_bytes: int
    mtime_ns: int


class ModelKey(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of loaded weights: equal keys share one replica."""

    role: Role
    family: str
    file: FileIdentity
    dtype: str

    def label(self) -> str:
        """A short name for people: `sd15/denoiser:dreamshaper.safetensors`."""
        return f"{self.family}/{self.role}:{self.file.path.rsplit('/', 1)[-1]}"


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """One weight change on a model (a LoRA file) and how strongly it is applied."""

    file: FileIdentity
    strength: float


class ModelRef(msgspec.Struct, frozen=True, kw_only=True):
    """A model as a node uses it: weights, ordered patches, and options such as a CLIP skip."""

    key: ModelKey
    patches: tuple[Patch, ...] = ()
    options: tuple[tuple[str, Scalar], ...] = ()
