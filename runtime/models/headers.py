"""What a checkpoint is, told by the names and shapes in its header.

The server imports this module, so there is no torch in it. A family is recognised by the names of
its denoiser; widths may be anything.
Source: design notes on models, section 3 ("recognised by").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ...graph_import.catalog import CheckpointInfo
from ...graph_import.handles import Role
from .weight_files import DTYPE_NAMES, Header, TensorInfo, problem, read_header

DENOISER_PREFIX: Final = "model.diffusion_model."
VAE_PREFIX: Final = "first_stage_model."
SD15_TEXT_PREFIX: Final = "cond_stage_model.transformer."
CLIP_TOKENS: Final = "embeddings.token_embedding.weight"

Tensors = Mapping[str, TensorInfo]


def inspect_checkpoint(path: Path) -> CheckpointInfo:
    """What the checkpoint at `path` is, from its header alone.

    Raises: ModelFileProblem: missing, empty, truncated, needs unpickling, of no known family.
    """
    header = read_header(path)
    for family, recognises in _FAMILIES.items():
        if recognises(header.tensors):
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
    raise problem(path, "this is a model of no known kind")


def _sd15_vae(tensors: Tensors) -> str | None:
    """A VAE of its own, with or without a checkpoint's prefix; gives the name of a weight."""
    for prefix in ("", VAE_PREFIX):
        name = prefix + "decoder.conv_in.weight"
        if _shape(tensors, name)[1:2] == (4,):
            return name
    return None


# (family, role) -> gives the name of a weight whose dtype stands for the file's, None: not it.
_PARTS: Final[Mapping[tuple[str, Role], Callable[[Tensors], str | None]]] = {
    ("sd15", Role.VAE): _sd15_vae,
}


def _describe(header: Header, family: str, path: Path) -> CheckpointInfo:
    tensors = header.tensors
    roles = {Role.DENOISER}
    if _shape(tensors, VAE_PREFIX + "decoder.conv_in.weight")[1:2] == (4,):
        roles.add(Role.VAE)
    if any(SD15_TEXT_PREFIX + level + CLIP_TOKENS in tensors for level in ("text_model.", "")):
        roles.add(Role.TEXT_ENCODER)
    stored = tensors[DENOISER_PREFIX + "input_blocks.0.0.weight"].dtype
    if stored not in DTYPE_NAMES:
        raise problem(path, f"its weights are stored as {stored}, which no model can use")
    return CheckpointInfo(
        file=header.file, family=family, roles=frozenset(roles), dtype=DTYPE_NAMES[stored]
    )


def _is_sd15(tensors: Tensors) -> bool:
    """A UNet with text attention and `proj_in` as a convolution, without a label embedding."""
    first = _shape(tensors, DENOISER_PREFIX + "input_blocks.0.0.weight")
    return (
        len(first) == 4
        and first[1] == 4
        and DENOISER_PREFIX + "label_emb.0.0.weight" not in tensors
        and _proj_in_dims(tensors) == {4}
    )


_FAMILIES: Final[Mapping[str, Callable[[Tensors], bool]]] = {"sd15": _is_sd15}


def _explain_unknown(tensors: Tensors) -> str:
    first = _shape(tensors, DENOISER_PREFIX + "input_blocks.0.0.weight")
    if len(first) == 4 and first[1] in (8, 9) and _proj_in_dims(tensors) == {4}:
        return "this is an inpainting or instruction checkpoint, which isn't supported yet"
    if first and DENOISER_PREFIX + "label_emb.0.0.weight" in tensors:
        return "this is an SDXL checkpoint, which isn't supported yet"
    if first and _proj_in_dims(tensors) == {2}:
        return "this is an SD2 checkpoint, which isn't supported yet"
    if not any(name.startswith(DENOISER_PREFIX) for name in tensors):
        return f"this is not a checkpoint (no tensor starts with {DENOISER_PREFIX!r})"
    return "this is a checkpoint of no known family"


def _proj_in_dims(tensors: Tensors) -> set[int]:
    """Dimensions of the UNet's `proj_in` weights: 4 where they are convolutions, 2 if linear."""
    return {
        len(info.shape)
        for name, info in tensors.items()
        if name.startswith(DENOISER_PREFIX) and name.endswith(".proj_in.weight")
    }


def _shape(tensors: Tensors, name: str) -> tuple[int, ...]:
    """The shape of a tensor, () where there is none."""
    info = tensors.get(name)
    return info.shape if info else ()
