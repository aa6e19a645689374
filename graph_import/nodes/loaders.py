"""Node classes that name models: they make handles and add nothing to the DAG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..catalog import Catalog, CheckpointInfo
from ..errors import ModelFileProblem
from ..handles import ModelKey, ModelRef, Role
from ..types import CLIP, MODEL, VAE
from .base import NodeClass
from .lowering import Handle, Lowering, Value
from .schema import FileChoices, NodeSchema, combo, ports
from .text_encoder_loaders import STORED_DTYPE
from .values import Absent

# As ComfyUI holds them on a CPU.
STORED_DTYPES: Final = {
    Role.DENOISER: "float32",
    Role.TEXT_ENCODER: STORED_DTYPE,
    Role.VAE: "float32",
}
# What UNETLoader offers, and what the weights are rounded to. Arithmetic in 8 bits (`_fast`) is a
# matter of speed that some GPUs offer; the weights are the same.
WEIGHT_DTYPES: Final = {
    "default": STORED_DTYPES[Role.DENOISER],
    "fp8_e4m3fn": "float8_e4m3fn",
    "fp8_e4m3fn_fast": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}


class CheckpointLoaderSimple(NodeClass):
    """A checkpoint file's denoiser, and its text encoder and VAE if it has them."""

    schema = NodeSchema(
        class_type="CheckpointLoaderSimple",
        display_name="Load Checkpoint",
        category="loaders",
        inputs=(combo("ckpt_name", FileChoices(kind="checkpoints"), {}),),
        outputs=ports(MODEL=MODEL, CLIP=CLIP, VAE=VAE),
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        if "ckpt_name" not in literals:
            return {}
        try:
            _checkpoint(literals["ckpt_name"], catalog)
        except ModelFileProblem as problem:
            return {"ckpt_name": problem.message}
        return {}

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        try:
            info = _checkpoint(node.text("ckpt_name"), node.catalog)
        except ModelFileProblem as problem:
            raise node.refusal("ckpt_name", problem.message) from problem
        return tuple(
            _part_of(info, role, dtype, node.text("ckpt_name"))
            for role, dtype in STORED_DTYPES.items()
        )


def _checkpoint(name: str, catalog: Catalog) -> CheckpointInfo:
    info = catalog.checkpoint(name)
    if Role.DENOISER not in info.roles:
        raise ModelFileProblem(f"{name} has no {Role.DENOISER}", name=name)
    return info


def _part_of(info: CheckpointInfo, role: Role, dtype: str, name: str) -> Value:
    """A model of a checkpoint. Some come without text encoders or VAE, for files of their own."""
    if role not in info.roles:
        return Absent(reason=f"{name} has no {role}")
    return Handle(
        ref=ModelRef(key=ModelKey(role=role, family=info.family, file=info.file, dtype=dtype))
    )


class VAELoader(NodeClass):
    """A VAE from a file of its own."""

    schema = NodeSchema(
        class_type="VAELoader",
        display_name="Load VAE",
        category="loaders",
        inputs=(combo("vae_name", FileChoices(kind="vae", more=("pixel_space",)), None),),
        outputs=ports(VAE=VAE),
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return check_part(literals, catalog, "vae_name", "vae", Role.VAE)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return (part_handle(node, "vae_name", "vae", Role.VAE),)


class UNETLoader(NodeClass):
    """A denoiser from a file of its own."""

    schema = NodeSchema(
        class_type="UNETLoader",
        display_name="Load Diffusion Model",
        category="advanced/loaders",
        inputs=(
            combo("unet_name", FileChoices(kind="diffusion_models"), None),
            combo("weight_dtype", tuple(WEIGHT_DTYPES), None),
        ),
        outputs=ports(MODEL=MODEL),
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return check_part(literals, catalog, "unet_name", "diffusion_models", Role.DENOISER)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        dtype = WEIGHT_DTYPES[node.text("weight_dtype")]
        return (part_handle(node, "unet_name", "diffusion_models", Role.DENOISER, dtype),)


def check_part(
    literals: Mapping[str, Any], catalog: Catalog, name: str, kind: str, role: Role
) -> Mapping[str, str]:
    """Why the file that `name` names can't be used, if it is named and can't."""
    if name not in literals:
        return {}
    try:
        _part(catalog, kind, literals[name], role)
    except ModelFileProblem as problem:
        return {name: problem.message}
    return {}


def part_handle(
    node: Lowering, name: str, kind: str, role: Role, dtype: str | None = None
) -> Handle:
    """The model in the file that input `name` names. Raises: NeedsValue, InputRefused."""
    try:
        info = _part(node.catalog, kind, node.text(name), role)
    except ModelFileProblem as problem:
        raise node.refusal(name, problem.message) from problem
    stored = dtype or STORED_DTYPES[role]
    key = ModelKey(role=role, family=info.family, file=info.file, dtype=stored)
    return Handle(ref=ModelRef(key=key))


def _part(catalog: Catalog, kind: str, name: str, role: Role) -> CheckpointInfo:
    if kind == "vae" and name == "pixel_space":
        raise ModelFileProblem("pixel_space, pictures as latents, is not supported yet", name=name)
    info = catalog.part(kind, name)
    if role not in info.roles:
        is_a = ", ".join(sorted(info.roles))
        raise ModelFileProblem(f"{name} is a {is_a}, not a {role}", name=name)
    return info
