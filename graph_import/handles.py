"""Symbolic model handles: what MODEL, CLIP and VAE sockets carry. Never tensors, never loaded here.

A loader node makes a `ModelRef`; LoRA nodes extend its patch set; sampling nodes set its options.
Source: architecture, sections 4 and 14 ("Identity", "Patches").
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

Scalar = bool | int | float | str | None

MODEL_SAMPLING = "model_sampling"  # option of a denoiser: a model sampling's text
MASK_BY_SIGMA = "mask_by_sigma"  # option of a denoiser: how far noise masks are thresholds, 0 to 1
CLIP_LAYER = "clip_layer"  # option of a text encoder: which layer it gives, -1 is the last
# Options of a text encoder with T5: how many padding ids follow a text (`text/tokenizer.py`).
T5_MIN_PADDING = "t5xxl_min_padding"
T5_MIN_LENGTH = "t5xxl_min_length"


class Role(StrEnum):
    """What a model does in a workflow."""

    DENOISER = "denoiser"
    TEXT_ENCODER = "text_encoder"
    VAE = "vae"
    CONTROLNET = "controlnet"
    UPSCALER = "upscaler"
    USER = "user"  # a model class of a user's own


class FileIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was when looked at: another size or time is another file."""

    path: str
    size_bytes: int
    mtime_ns: int


class IoSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A declared input or output; a deferred input is fetched where `execute` first uses it."""

    name: str
    type: str
    is_deferred: bool = False


class UserClass(msgspec.Struct, frozen=True, kw_only=True):
    """A model class of a user's own, in a Python file with exactly this content.

    Args:
        name: of the class, at the top of the file.
        sha256: of the file's bytes, as hex digits: another content is another model.
        settings: the keyword arguments that the model is made with.
        inputs, outputs: what its `setup_io` declared.
    """

    name: str
    sha256: str
    settings: tuple[tuple[str, Scalar], ...]
    inputs: tuple[IoSpec, ...]
    outputs: tuple[IoSpec, ...]


class ModelKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Identity of loaded weights: equal keys share one replica.

    A text encoder may lie in several files: the first is `file`, `more_files` are the others, in
    the order of its family's encoders. For a model of a user's own, `file` is the Python file and
    `user_class` says which class.
    """

    role: Role
    family: str
    file: FileIdentity
    dtype: str
    user_class: UserClass | None = None
    more_files: tuple[FileIdentity, ...] = ()

    @property
    def files(self) -> tuple[FileIdentity, ...]:
        """All files that the weights are in."""
        return (self.file, *self.more_files)

    @property
    def size_bytes(self) -> int:
        """Of all its files together."""
        return sum(file.size_bytes for file in self.files)

    def label(self) -> str:
        """A short name for people: `sd15/denoiser:dreamshaper.safetensors`."""
        if self.user_class is not None:
            return f"{self.role}/{self.user_class.name}:{self.file.path.rsplit('/', 1)[-1]}"
        names = "+".join(file.path.rsplit("/", 1)[-1] for file in self.files)
        return f"{self.family}/{self.role}:{names}"


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """One weight change on a model (a LoRA file) and how strongly it is applied."""

    file: FileIdentity
    strength: float


class ModelRef(msgspec.Struct, frozen=True, kw_only=True):
    """A model as a node uses it: weights, ordered patches, and options such as a CLIP skip."""

    key: ModelKey
    patches: tuple[Patch, ...] = ()
    options: tuple[tuple[str, Scalar], ...] = ()

    def option(self, name: str) -> str:
        """The text of option `name`; empty: it is not set."""
        value = dict(self.options).get(name, "")
        return value if isinstance(value, str) else ""

    def with_option(self, name: str, value: Scalar) -> ModelRef:
        """This model with option `name` set, behind the others."""
        others = tuple(option for option in self.options if option[0] != name)
        return msgspec.structs.replace(self, options=(*others, (name, value)))
