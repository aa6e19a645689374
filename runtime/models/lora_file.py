"""What a LoRA file says it changes, by the names in its header: no tensors, no torch.

Trainers spell names in many ways: `lora_unet_down_blocks_0_...lora_up.weight` (kohya),
`unet.down_blocks.0...lora_B.weight` (diffusers), `diffusion_model.input_blocks.1...`. A name's end
tells what the tensor is for (its slot), its beginning for which model, and the rest names a module.
Source: design notes on models, section 7.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ...graph_import.handles import FileIdentity, Role
from .weight_files import check_unchanged, read_header


class Part(StrEnum):
    """The model that a name is meant for."""

    DENOISER = "denoiser"
    CLIP_L = "clip_l"
    CLIP_G = "clip_g"
    T5XXL = "t5xxl"
    QWEN3_4B = "qwen3_4b"

    @property
    def role(self) -> Role:
        """The role of that model."""
        return Role.DENOISER if self is Part.DENOISER else Role.TEXT_ENCODER


class Slot(StrEnum):
    """What a tensor is to its module's change; the value is its suffix in LyCORIS's files."""

    UP = "lora_up.weight"
    DOWN = "lora_down.weight"
    MID = "lora_mid.weight"
    ALPHA = "alpha"
    DORA_SCALE = "dora_scale"
    HADA_W1_A = "hada_w1_a"
    HADA_W1_B = "hada_w1_b"
    HADA_W2_A = "hada_w2_a"
    HADA_W2_B = "hada_w2_b"
    HADA_T1 = "hada_t1"
    HADA_T2 = "hada_t2"
    LOKR_W1 = "lokr_w1"
    LOKR_W1_A = "lokr_w1_a"
    LOKR_W1_B = "lokr_w1_b"
    LOKR_W2 = "lokr_w2"
    LOKR_W2_A = "lokr_w2_a"
    LOKR_W2_B = "lokr_w2_b"
    LOKR_T2 = "lokr_t2"
    DIFF = "diff"
    DIFF_B = "diff_b"
    SET_WEIGHT = "set_weight"


_SLOTS: Final[Mapping[str, Slot]] = {
    **{f".{slot}": slot for slot in Slot},
    ".w_norm": Slot.DIFF,
    ".b_norm": Slot.DIFF_B,
    ".lora_magnitude_vector": Slot.DORA_SCALE,
    ".lora_magnitude_vector.weight": Slot.DORA_SCALE,
    ".lora_magnitude_vector.default.weight": Slot.DORA_SCALE,
    **{
        end: slot
        for slot, peft, word in ((Slot.UP, "B", "up"), (Slot.DOWN, "A", "down"))
        for end in (
            f".lora_{peft}.weight",
            f".lora_{peft}.default.weight",
            f".lora_{peft}",
            f".lora.{word}.weight",
            f"_lora.{word}.weight",
            f".lora_linear_layer.{word}.weight",
        )
    },
}
_SUFFIX: Final = re.compile(
    "(" + "|".join(re.escape(end) for end in sorted(_SLOTS, key=len, reverse=True)) + ")$"
)

_PREFIXES: Final[Mapping[str, Part]] = {
    "lora_unet_": Part.DENOISER,
    "lora_transformer_": Part.DENOISER,
    "lycoris_": Part.DENOISER,
    "unet.": Part.DENOISER,
    "transformer.": Part.DENOISER,
    "diffusion_model.": Part.DENOISER,
    "model.diffusion_model.": Part.DENOISER,
    "lora_te_": Part.CLIP_L,
    "lora_te1_": Part.CLIP_L,
    "text_encoder.": Part.CLIP_L,
    "text_encoders.clip_l.transformer.": Part.CLIP_L,
    "cond_stage_model.transformer.": Part.CLIP_L,
    "lora_te2_": Part.CLIP_G,
    "text_encoder_2.": Part.CLIP_G,
    "text_encoders.clip_g.transformer.": Part.CLIP_G,
    "lora_te3_": Part.T5XXL,
    "text_encoder_3.": Part.T5XXL,
    "text_encoders.t5xxl.transformer.": Part.T5XXL,
    "text_encoders.qwen3_4b.transformer.": Part.QWEN3_4B,
}
_PREFIX: Final = re.compile("|".join(map(re.escape, _PREFIXES)))
_PEFT_PREFIX: Final = "base_model.model."  # says nothing of which model it is
_BARE_DENOISER: Final = re.compile(
    r"(down_blocks|up_blocks|mid_block|time_embedding|conv_in|conv_out|conv_norm_out"
    r"|input_blocks|output_blocks|middle_block|time_embed|out)\."
)
_BARE_TEXT: Final = "text_model."


@dataclass(slots=True, frozen=True)
class LoraModule:
    """What a file has for one module: `path` with underscores for dots, and the keys by slot."""

    part: Part
    path: str
    keys: Mapping[Slot, str]


@dataclass(slots=True, frozen=True)
class LoraFile:
    """A file's names in order; `unknown` are the keys that say nothing we know."""

    file: FileIdentity
    modules: tuple[LoraModule, ...]
    unknown: tuple[str, ...]
    num_tensors: int

    def claims(self, role: Role) -> bool:
        """Whether the file says that it changes a model of this role."""
        return any(module.part.role is role for module in self.modules)


def read_lora(file: FileIdentity) -> LoraFile:
    """The names in a file.

    Raises: ModelFileProblem: it changed, is missing, truncated, no safetensors, needs unpickling.
    """
    check_unchanged(file)
    names = read_header(Path(file.path)).tensors
    modules: dict[tuple[Part, str], dict[Slot, str]] = {}
    unknown: list[str] = []
    for key in names:
        end = _SUFFIX.search(key)
        target = None if end is None else _target(key[: end.start()])
        if end is None or target is None:
            unknown.append(key)
        else:
            modules.setdefault(target, {})[_SLOTS[end.group()]] = key
    return LoraFile(
        file=file,
        modules=tuple(LoraModule(part, path, keys) for (part, path), keys in modules.items()),
        unknown=tuple(unknown),
        num_tensors=len(names),
    )


def plain_path(path: str) -> str:
    """A module's path in the one spelling in which all are compared."""
    return path.replace(".processor.", ".").replace(".", "_")


def _target(stem: str) -> tuple[Part, str] | None:
    """The model and module that a name without its suffix is for."""
    prefix = _PREFIX.match(stem)
    if prefix is not None:
        return _PREFIXES[prefix.group()], plain_path(stem[prefix.end() :])
    bare = stem.removeprefix(_PEFT_PREFIX)
    if bare.startswith(_BARE_TEXT):
        return Part.CLIP_L, plain_path(bare)
    if bare != stem or _BARE_DENOISER.match(bare):
        return Part.DENOISER, plain_path(bare)
    return None
