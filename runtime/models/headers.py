"""What a checkpoint is, told by the names and shapes in its header.

The server imports this module, so there is no torch in it. A family is recognised by the names of
its denoiser; widths may be anything.
Source: design notes on models, section 3 ("recognised by").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...graph_import.catalog import CheckpointInfo
from ...graph_import.handles import FileIdentity, Role
from ...graph_import.text_encoders import FAMILY_ENCODERS
from .lora_file import read_lora
from .text.places import other_text_encoder, text_places
from .weight_files import DTYPE_NAMES, Header, TensorInfo, identify, problem, read_header

DENOISER_PREFIX: Final = "model.diffusion_model."
VAE_PREFIX: Final = "first_stage_model."
CONTROLNET_PREFIX: Final = "control_model."
UNET_IN_CHANNELS: Final = frozenset({4, 9})  # 9: an inpainting UNet's

# Names that tell files which only together with a denoiser make a ControlNet.
_NO_CONTROLNETS: Final = {
    "difference": "a ControlNet stored as a difference from a denoiser",
    "lora_controlnet": "a Control-LoRA",
}

# Names that tell denoisers of families that we don't have; the first one found counts.
_OTHER_DENOISERS: Final = {
    "double_stream_modulation_img.lin.weight": "Flux.2",
    "double_blocks.0.img_attn.norm.key_norm.scale": "Flux",
    "cap_embedder.1.weight": "Z-Image or Lumina",
    "txt_norm.weight": "Qwen-Image",
}

Tensors = Mapping[str, TensorInfo]


def inspect_checkpoint(path: Path) -> CheckpointInfo:
    """What the checkpoint at `path` is, from its header alone.

    Raises: ModelFileProblem: missing, empty, truncated, needs unpickling, of no known family.
    """
    header = read_header(path)
    for family, layout in _FAMILIES.items():
        if layout.recognises(header.tensors):
            return _describe(header, family, path)
    raise problem(path, _explain_unknown(header.tensors))


def inspect_part(path: Path) -> CheckpointInfo:
    """What a file that holds one model is: whichever recogniser of `_PARTS` knows its names.

    Raises: ModelFileProblem, as `inspect_checkpoint`.
    """
    header = read_header(path)
    for (family, role), name_of in _PARTS.items():
        stored = name_of(header.tensors)
        if stored is not None:
            dtype = header.tensors[stored].dtype
            if dtype not in DTYPE_NAMES:
                raise problem(path, f"its weights are stored as {dtype}, which no model can use")
            return CheckpointInfo(
                file=header.file,
                family=family,
                roles=frozenset({role}),
                dtype=DTYPE_NAMES[dtype],
            )
    encoders = _text_encoders(header, path)
    if encoders is not None:
        return encoders
    raise problem(path, _explain_unknown_part(header.tensors))


def _text_encoders(header: Header, path: Path) -> CheckpointInfo | None:
    """What a file of text encoders is; None: it is none. Raises: ModelFileProblem."""
    places = text_places(header.tensors)
    if not places:
        return None
    names = tuple(place.encoder for place in places)
    for place in places:
        stored = header.tensors[place.tokens].dtype
        if stored not in DTYPE_NAMES:
            raise problem(
                path, f"its {place.encoder} is stored as {stored}, which no model can use"
            )
    families = [name for name, own in FAMILY_ENCODERS.items() if set(names) & set(own)]
    return CheckpointInfo(
        file=header.file,
        family=families[0],
        roles=frozenset({Role.TEXT_ENCODER}),
        dtype=DTYPE_NAMES[header.tensors[places[0].tokens].dtype],
        encoders=names,
    )


def inspect_upscaler(path: Path) -> CheckpointInfo:
    """What an upscaler's file is: there are too many kinds to tell them apart by a header.

    Raises: ModelFileProblem: missing, damaged, needs unpickling, of a dtype that nobody can use.
    """
    header = read_header(path)
    dtypes = {info.dtype for info in header.tensors.values()} & DTYPE_NAMES.keys()
    if not dtypes:
        raise problem(path, "this is no model: it holds no floating point weights")
    return CheckpointInfo(
        file=header.file,
        family="upscaler",
        roles=frozenset({Role.UPSCALER}),
        dtype=DTYPE_NAMES[min(dtypes)],
    )


def inspect_lora(path: Path) -> FileIdentity:
    """The identity of a LoRA file whose header says that it changes some model.

    Raises: ModelFileProblem: missing, truncated, needs unpickling, or no key of it is known.
    """
    lora = read_lora(identify(path))
    if not lora.modules:
        raise problem(path, "this is no LoRA: none of its keys is known")
    return lora.file


def _sd15_denoiser(tensors: Tensors) -> str | None:
    """A UNet of its own, with or without a checkpoint's prefix; gives the name of a weight.

    A ControlNet begins like one, but has no way out.
    """
    for prefix in ("", DENOISER_PREFIX):
        if _is_sd15(tensors, prefix) and prefix + "out.2.weight" in tensors:
            return prefix + "input_blocks.0.0.weight"
    return None


def _sd15_vae(tensors: Tensors) -> str | None:
    """A VAE of its own, with or without a checkpoint's prefix; gives the name of a weight."""
    for prefix in ("", VAE_PREFIX):
        name = prefix + "decoder.conv_in.weight"
        if _shape(tensors, name)[1:2] == (4,):
            return name
    return None


def _sd3_denoiser(tensors: Tensors) -> str | None:
    """A transformer of its own, with or without a checkpoint's prefix; gives the name of a weight.

    A ControlNet may have such blocks too, but no final layer.
    """
    for prefix in ("", DENOISER_PREFIX):
        if _is_sd3(tensors, prefix) and prefix + "final_layer.linear.weight" in tensors:
            return prefix + "x_embedder.proj.weight"
    return None


def _sd3_vae(tensors: Tensors) -> str | None:
    """A VAE of 16 channels without convolutions around the latents; Flux's has the same layout."""
    for prefix in ("", VAE_PREFIX):
        name = prefix + "decoder.conv_in.weight"
        if _shape(tensors, name)[1:2] == (16,) and prefix + "quant_conv.weight" not in tensors:
            return name
    return None


def _sd3_controlnet(tensors: Tensors) -> str | None:
    """A ControlNet of InstantX's kind, under diffusers' names; gives the name of a weight.

    Stability's for SD3.5 large begin like one, but their blocks see no text.
    """
    name = "pos_embed_input.proj.weight"
    return name if name in tensors and "context_embedder.weight" in tensors else None


def _sd15_controlnet(tensors: Tensors) -> str | None:
    """A ControlNet in the cldm layout or under diffusers' names; gives the name of a weight.

    One for SDXL has a label embedding, one for SD2 linear projections.
    """
    if not _NO_CONTROLNETS.keys().isdisjoint(tensors):
        return None
    for prefix in (CONTROLNET_PREFIX, ""):
        is_of_sd15 = _is_sd15(tensors, prefix, frozenset({4}))
        if prefix + "zero_convs.0.0.weight" in tensors and is_of_sd15:
            return prefix + "zero_convs.0.0.weight"
    own, embedding = "controlnet_cond_embedding.conv_in.weight", "add_embedding.linear_1.weight"
    if own in tensors and embedding not in tensors and _proj_in_dims(tensors, "") == {4}:
        return own
    return None


# (family, role) -> gives the name of a weight whose dtype stands for the file's, None: not it.
_PARTS: Final[Mapping[tuple[str, Role], Callable[[Tensors], str | None]]] = {
    ("sd15", Role.VAE): _sd15_vae,
    ("sd15", Role.CONTROLNET): _sd15_controlnet,
    ("sd15", Role.DENOISER): _sd15_denoiser,
    ("sd3", Role.VAE): _sd3_vae,
    ("sd3", Role.CONTROLNET): _sd3_controlnet,
    ("sd3", Role.DENOISER): _sd3_denoiser,
}


def _describe(header: Header, family: str, path: Path) -> CheckpointInfo:
    tensors = header.tensors
    layout = _FAMILIES[family]
    roles = {Role.DENOISER}
    if _shape(tensors, VAE_PREFIX + "decoder.conv_in.weight")[1:2] == (layout.latent_channels,):
        roles.add(Role.VAE)
    encoders = tuple(
        place.encoder
        for place in text_places(tensors)
        if place.prefix and place.encoder in FAMILY_ENCODERS[family]
    )
    if encoders:
        roles.add(Role.TEXT_ENCODER)
    stored = tensors[DENOISER_PREFIX + layout.first].dtype
    if stored not in DTYPE_NAMES:
        raise problem(path, f"its weights are stored as {stored}, which no model can use")
    return CheckpointInfo(
        file=header.file,
        family=family,
        roles=frozenset(roles),
        dtype=DTYPE_NAMES[stored],
        encoders=encoders,
    )


def _is_sd15(
    tensors: Tensors,
    prefix: str = DENOISER_PREFIX,
    in_channels: frozenset[int] = UNET_IN_CHANNELS,
) -> bool:
    """A UNet with text attention and `proj_in` as a convolution, without a label embedding."""
    first = _shape(tensors, prefix + "input_blocks.0.0.weight")
    return (
        len(first) == 4
        and first[1] in in_channels
        and prefix + "label_emb.0.0.weight" not in tensors
        and _proj_in_dims(tensors, prefix) == {4}
    )


def _is_sd3(tensors: Tensors, prefix: str = DENOISER_PREFIX) -> bool:
    """A transformer that joins text and picture in every block."""
    return (
        prefix + "joint_blocks.0.context_block.attn.qkv.weight" in tensors
        and len(_shape(tensors, prefix + "x_embedder.proj.weight")) == 4
    )


@dataclass(slots=True, frozen=True)
class _Layout:
    """How a family's checkpoints are known, and what tells which parts they have.

    Args:
        first: the denoiser's weight whose dtype stands for the file's.
    """

    recognises: Callable[[Tensors], bool]
    first: str
    latent_channels: int


_FAMILIES: Final[Mapping[str, _Layout]] = {
    "sd15": _Layout(_is_sd15, "input_blocks.0.0.weight", 4),
    "sd3": _Layout(_is_sd3, "x_embedder.proj.weight", 16),
}


def _explain_unknown(tensors: Tensors) -> str:
    first = _shape(tensors, DENOISER_PREFIX + "input_blocks.0.0.weight")
    if len(first) == 4 and first[1] == 8 and _proj_in_dims(tensors) == {4}:
        return "this is an instruction checkpoint, which isn't supported yet"
    if first and DENOISER_PREFIX + "label_emb.0.0.weight" in tensors:
        return "this is an SDXL checkpoint, which isn't supported yet"
    if first and _proj_in_dims(tensors) == {2}:
        return "this is an SD2 checkpoint, which isn't supported yet"
    other = _other_denoiser(tensors, DENOISER_PREFIX)
    if other is not None:
        return f"this is a checkpoint of {other}, which isn't supported yet"
    if not any(name.startswith(DENOISER_PREFIX) for name in tensors):
        return f"this is not a checkpoint (no tensor starts with {DENOISER_PREFIX!r})"
    return "this is a checkpoint of no known family"


def _explain_unknown_part(tensors: Tensors) -> str:
    for marker, kind in _NO_CONTROLNETS.items():
        if marker in tensors:
            return f"this is {kind}, which isn't supported yet"
    for prefix in ("", DENOISER_PREFIX):
        other = _other_denoiser(tensors, prefix)
        if other is not None:
            return f"this is a denoiser of {other}, which isn't supported yet"
    encoder = other_text_encoder(tensors)
    if encoder is not None:
        return f"this is {encoder}, a text encoder that isn't supported yet"
    return "this is a model of no known kind"


def _other_denoiser(tensors: Tensors, prefix: str) -> str | None:
    """The family of a denoiser that we don't have; None: it is none that we know of."""
    for marker, family in _OTHER_DENOISERS.items():
        if prefix + marker in tensors:
            return family
    return None


def _proj_in_dims(tensors: Tensors, prefix: str = DENOISER_PREFIX) -> set[int]:
    """Dimensions of the UNet's `proj_in` weights: 4 where they are convolutions, 2 if linear."""
    return {
        len(info.shape)
        for name, info in tensors.items()
        if name.startswith(prefix) and name.endswith(".proj_in.weight")
    }


def _shape(tensors: Tensors, name: str) -> tuple[int, ...]:
    """The shape of a tensor, () where there is none."""
    info = tensors.get(name)
    return info.shape if info else ()
