"""The models that we can build, by family and role. Imports a family when it is asked for."""

from __future__ import annotations

from pathlib import Path

from ...graph_import.errors import ModelFileProblem
from ...graph_import.handles import ModelRef, Role
from ...graph_import.model import Model


def build(ref: ModelRef, user_files: Path | None = None) -> Model:
    """The model for a handle, not loaded yet.

    Its patches are put on and its options set by whoever loads it (`executor/model_cache.py`).
    Args: user_files: where Python files of users' own lie that may run; None: none may.
    Raises: ModelFileProblem: no such family or role.
    """
    if ref.key.user_class is not None:
        from .user_model import UserModel

        return UserModel(ref, user_files)
    makers = {"sd15": _sd15, "sd3": _sd3, "upscaler": _upscaler}
    maker = _text_encoder if ref.key.role is Role.TEXT_ENCODER else makers.get(ref.key.family)
    if maker is None:
        raise ModelFileProblem(f"{ref.key.label()}: the family {ref.key.family} is unknown")
    return maker(ref)


def _sd15(ref: ModelRef) -> Model:
    match ref.key.role:
        case Role.DENOISER:
            from .sd15.denoiser import Denoiser

            return Denoiser(ref)
        case Role.CONTROLNET:
            from .sd15.controlnet import ControlNet

            return ControlNet(ref)
        case Role.VAE:
            from .sd15.vae import Vae

            return Vae(ref)
        case _:
            raise ModelFileProblem(f"{ref.key.label()}: {ref.key.family} has no {ref.key.role}")


def _text_encoder(ref: ModelRef) -> Model:
    match ref.key.family:
        case "sd15":
            from .sd15.text_encoder import TextEncoder as Sd15

            return Sd15(ref)
        case "sdxl":
            from .sdxl.text_encoder import TextEncoder as Sdxl

            return Sdxl(ref)
        case "sd3":
            from .sd3.text_encoder import TextEncoder as Sd3

            return Sd3(ref)
        case "flux":
            from .flux.text_encoder import TextEncoder as Flux

            return Flux(ref)
        case "z_image":
            from .z_image.text_encoder import TextEncoder as ZImage

            return ZImage(ref)
        case _:
            raise ModelFileProblem(f"{ref.key.label()}: {ref.key.family} has no {ref.key.role}")


def _sd3(ref: ModelRef) -> Model:
    match ref.key.role:
        case Role.DENOISER:
            from .sd3.denoiser import Denoiser

            return Denoiser(ref)
        case Role.CONTROLNET:
            from .sd3.controlnet import ControlNet

            return ControlNet(ref)
        case Role.VAE:
            from .sd15.vae import Vae  # the same class of model, with 16 channels

            return Vae(ref)
        case _:
            raise ModelFileProblem(f"{ref.key.label()}: {ref.key.family} has no {ref.key.role}")


def _upscaler(ref: ModelRef) -> Model:
    from .upscaler import Upscaler

    return Upscaler(ref)


def import_libraries() -> None:
    """Import what loading needs, 4.5 s of CPU beside torch's own 1.6.

    Naming the submodules instead saves nothing. An executor may call this before its first load.
    """
    import diffusers
    import transformers

    for library, name in (
        (diffusers, "UNet2DConditionModel"),
        (diffusers, "ControlNetModel"),
        (diffusers, "SD3Transformer2DModel"),
        (diffusers, "SD3ControlNetModel"),
        (diffusers, "AutoencoderKL"),
        (transformers, "CLIPTextModelWithProjection"),
    ):
        getattr(library, name)  # both libraries import lazily, on attribute access
