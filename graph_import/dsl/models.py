"""The built-in models of Python workflows: text encoder, denoiser, VAE, ControlNet, sampling.

The files that they name are looked for when the workflow is bound to values, so names, like any
setting here, may be inputs of the workflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..errors import CompositionError, Fault
from ..scope import caller
from .built_in import BuiltIn, Number, Patchable, Tensor, Text, Whole
from .placeholder import Placeholder


class TextEncoder(Patchable):
    """Texts to conditionings, by the text encoder of a checkpoint, or of one to three files.

    Args:
        file: a name, or a list of the names of files that make one text encoder, in any order.
        type: what the files are for, as ComfyUI's loaders call it: `stable_diffusion`, `sd3`,
            `sdxl`, `flux` ...
        layer: which layer it gives: -1, the default, is the last.
    """

    def __init__(
        self,
        checkpoint: Text | None = None,
        *,
        file: Text | Sequence[Text] | None = None,
        type: Text | None = None,
        layer: Whole | None = None,
    ) -> None:
        super().__init__()
        files = file if isinstance(file, list | tuple) else (file,)
        _one_of(checkpoint, files[0] if files else None)
        self._checkpoint = checkpoint
        self._files = () if file is None else _text_encoder_files(files, type)
        self._type = type
        self._layer = layer

    def __call__(self, text: Text) -> Placeholder:
        """CONDITIONING of `text`."""
        clip = self._patched(self._loaded(), "nodeloom.TextEncoderLora", "clip", "strength_clip")
        if self._layer is not None:
            (clip,) = self._shared("CLIPSetLastLayer", clip=clip, stop_at_clip_layer=self._layer)
        return self._record("CLIPTextEncode", text=text, clip=clip)[0]

    def _loaded(self) -> Placeholder:
        """CLIP of the checkpoint or of the files."""
        if self._checkpoint is not None:
            return self._shared("CheckpointLoaderSimple", ckpt_name=self._checkpoint)[1]
        if len(self._files) == 1:
            type_ = "stable_diffusion" if self._type is None else self._type
            return self._shared("CLIPLoader", clip_name=self._files[0], type=type_)[0]
        names = {f"clip_name{number}": file for number, file in enumerate(self._files, start=1)}
        if len(self._files) == 2:
            return self._shared("DualCLIPLoader", **names, type=self._type)[0]
        return self._shared("TripleCLIPLoader", **names)[0]


class Denoiser(Patchable):
    """The denoiser of a checkpoint, or of a `file` of its own."""

    def __init__(self, checkpoint: Text | None = None, *, file: Text | None = None) -> None:
        super().__init__()
        self._weights = _one_of(checkpoint, file)

    def __call__(
        self,
        latents: Tensor,
        positive: Tensor,
        negative: Tensor,
        residuals: Tensor | Sequence[Tensor] = (),
        *,
        cfg: Number = 8.0,
    ) -> Placeholder:
        """ESTIMATE at the latents' next step, guided by both conditionings.

        `residuals` are of ControlNets that were given the same latents and conditionings.
        """
        given = residuals if isinstance(residuals, list | tuple) else (residuals,)
        numbered = {f"residuals_{index}": item for index, item in enumerate(given)}
        sides = {"positive": positive, "negative": negative}
        named = {"model": self.handle(), "latents": latents, **sides, "cfg": cfg, **numbered}
        return self._record("nodeloom.Denoiser", **named)[0]

    def handle(self) -> Placeholder:
        """MODEL, as node classes take it, with the LoRAs on it."""
        checkpoint, file = self._weights
        if file is None:
            model = self._shared("CheckpointLoaderSimple", ckpt_name=checkpoint)[0]
        else:
            (model,) = self._shared("UNETLoader", unet_name=file, weight_dtype="default")
        return self._patched(model, "LoraLoaderModelOnly", "model", "strength_model")


class Vae(BuiltIn):
    """Pictures to latents and back, by the VAE of a checkpoint, or of a `file` of its own."""

    def __init__(self, checkpoint: Text | None = None, *, file: Text | None = None) -> None:
        super().__init__()
        self._weights = _one_of(checkpoint, file)

    def __call__(self, value: Tensor, mode: Literal["encode", "decode"]) -> Placeholder:
        """LATENT of an IMAGE, or IMAGE of a LATENT (also of latents after their last step)."""
        if mode not in ("encode", "decode"):
            message = f"Vae, input 'mode': encode or decode expected, {mode!r} given"
            raise CompositionError(message, Fault.WRONG_VALUE, caller())
        checkpoint, file = self._weights
        if file is None:
            vae = self._shared("CheckpointLoaderSimple", ckpt_name=checkpoint)[2]
        else:
            (vae,) = self._shared("VAELoader", vae_name=file)
        if mode == "encode":
            return self._record("VAEEncode", pixels=value, vae=vae)[0]
        return self._record("VAEDecode", samples=value, vae=vae)[0]

    def encode(self, image: Tensor) -> Placeholder:
        """LATENT of an IMAGE."""
        return self(image, "encode")

    def decode(self, latents: Tensor) -> Placeholder:
        """IMAGE of a LATENT."""
        return self(latents, "decode")


class ControlNet(BuiltIn):
    """A ControlNet in a `file` of its own."""

    def __init__(self, file: Text) -> None:
        super().__init__()
        self._file = file

    def __call__(
        self,
        latents: Tensor,
        positive: Tensor,
        negative: Tensor,
        hint: Tensor,
        strength: Number = 1.0,
    ) -> Placeholder:
        """RESIDUALS for the denoiser's call with the same latents and conditionings."""
        (control_net,) = self._shared("ControlNetLoader", control_net_name=self._file)
        return self._record(
            "nodeloom.ControlNet",
            control_net=control_net,
            latents=latents,
            positive=positive,
            negative=negative,
            image=hint,
            strength=strength,
        )[0]


class LatentsGenerator(BuiltIn):
    """Noisy latents for the steps of `schedule` with `sampler`, for `denoiser`."""

    def __init__(
        self, denoiser: Denoiser, *, sampler: Text = "euler", schedule: Text = "normal"
    ) -> None:
        super().__init__()
        self._denoiser = denoiser
        self._sampler = sampler
        self._schedule = schedule

    def __call__(
        self,
        seed: Whole,
        steps: Whole,
        latent: Tensor | None = None,
        *,
        denoise: Number = 1.0,
        width: Whole = 512,
        height: Whole = 512,
        batch_size: Whole = 1,
    ) -> Placeholder:
        """SAMPLER_STATE before the first of `steps`.

        It starts from `latent`, by default an empty one for pictures of `width` x `height` pixels;
        a `denoise` below 1 starts late in a longer schedule.
        """
        if latent is None:
            size = {"width": width, "height": height, "batch_size": batch_size}
            (latent,) = self._shared("EmptyLatentImage", **size)
        return self._record(
            "nodeloom.LatentsGenerator",
            model=self._denoiser.handle(),
            seed=seed,
            steps=steps,
            sampler_name=self._sampler,
            scheduler=self._schedule,
            latent_image=latent,
            denoise=denoise,
        )[0]


class SamplerStep(BuiltIn):
    """One step of the schedule."""

    def __call__(self, estimate: Tensor, latents: Tensor) -> Placeholder:
        """The latents after the step that `estimate` was made for."""
        return self._record("nodeloom.SamplerStep", estimate=estimate, latents=latents)[0]


def _one_of(checkpoint: Text | None, file: Text | None) -> tuple[Text | None, Text | None]:
    if (checkpoint is None) == (file is None):
        message = "name a checkpoint, or a file=... of the model's own"
        raise CompositionError(message, Fault.MISSING_INPUT, caller())
    return checkpoint, file


def _text_encoder_files(files: Sequence[Text], type_: Text | None) -> tuple[Text, ...]:
    """The files of one text encoder. Raises: CompositionError: too many, or not for this type."""
    if len(files) > 3:
        message = f"TextEncoder, input 'file': one to three files expected, {len(files)} given"
        raise CompositionError(message, Fault.WRONG_VALUE, caller())
    if len(files) == 2 and type_ is None:
        message = "TextEncoder of two files: say what they are for, type='sdxl', 'sd3' or 'flux'"
        raise CompositionError(message, Fault.MISSING_INPUT, caller())
    if len(files) == 3 and type_ not in (None, "sd3"):
        message = f"TextEncoder of three files: only type 'sd3' has as many, {type_!r} given"
        raise CompositionError(message, Fault.WRONG_VALUE, caller())
    return tuple(files)
