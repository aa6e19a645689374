"""The values that go over edges, and how they fall apart into a small tree and tensors.

IMAGE and MASK are bare tensors. Only executors import this module: it needs torch.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
import torch

from ..graph_import.handles import Scalar
from ..graph_import.sampling.base import SamplerState

LATENT_PIXELS: Final = 8  # pixels along one side of a latent


class Latent(msgspec.Struct, frozen=True, kw_only=True):
    """A LATENT.

    Args:
        samples: float32 [B, C, H/8, W/8], unscaled.
        noise_mask: float32 [B or 1, 1, H, W] in pixels or latent units, 1 where to sample; or None.
        batch_index: which noise each item takes, as if it were that item of a larger batch.
    """

    samples: torch.Tensor
    noise_mask: torch.Tensor | None = None
    batch_index: tuple[int, ...] | None = None


class AvLatent(msgspec.Struct, frozen=True, kw_only=True):
    """A LATENT of a video and its sound, which one denoiser makes together."""

    video: Latent
    audio: Latent


class CondDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes put on an entry for denoisers that are told more than a text; None: nothing.

    A denoiser that takes none of it leaves it.

    Args:
        guidance: scale that a guidance-distilled denoiser is told.
        is_guidance_off: such a denoiser is told no scale at all.
        reference_latents: unscaled latents of the pictures to work from, in order.
        reference_method: how these are told from the picture itself.
        noise_augmentation: share of noise (0 to 1) on `concat_image` or the concat latents.
        concat_image: float32 [B, 3, h, w], -1 to 1, of the size of the latents.
        frame_rate: frames per second.
        cascade_prior: latents of Stable Cascade's stage C.
        numbers: sizes in pixels and a score that the denoiser was trained to look at, by name:
            `width`, `height`, `crop_w`, `crop_h`, `target_width`, `target_height`,
            `aesthetic_score`.
    """

    guidance: float | None = None
    is_guidance_off: bool = False
    reference_latents: tuple[torch.Tensor, ...] = ()
    reference_method: str | None = None
    noise_augmentation: float | None = None
    concat_image: torch.Tensor | None = None
    frame_rate: float | None = None
    cascade_prior: torch.Tensor | None = None
    numbers: tuple[tuple[str, float], ...] = ()

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All that take memory."""
        pictures = (self.concat_image, self.cascade_prior)
        return (*self.reference_latents, *(one for one in pictures if one is not None))


class CondEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One text on one side of the guidance, and where and when it counts.

    Args:
        cond: float32 [1, tokens, width].
        pooled: float32 [1, width] or None.
        area: (unit, height, width, y, x), or (unit, frames, height, width, first frame, y, x); the
            unit is `latent` or `percentage`.
        strength: weight of the entry within its side.
        mask: float32 [B or 1, H, W]; `is_mask_bounds` crops to where it is not zero.
        start_percent, end_percent: part of the sampling in which it counts.
        controls: markers of the ControlNets that steer it, in order.
        hooks: markers of the hooks under which the denoiser is evaluated, in order.
        concat_latent: unscaled latents that an inpainting denoiser takes as further channels.
        concat_mask: float32 mask that goes with them.
        is_default: it counts where the side's other entries leave a gap.
        more: what some denoisers are told beside the text.
    """

    cond: torch.Tensor
    pooled: torch.Tensor | None
    area: tuple[str, *tuple[float, ...]] | None = None
    strength: float = 1.0
    mask: torch.Tensor | None = None
    mask_strength: float = 1.0
    is_mask_bounds: bool = False
    start_percent: float = 0.0
    end_percent: float = 1.0
    controls: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    concat_latent: torch.Tensor | None = None
    concat_mask: torch.Tensor | None = None
    is_default: bool = False
    more: CondDetails = CondDetails()


class Conditioning(msgspec.Struct, frozen=True, kw_only=True):
    """What steers a denoiser: the entries are combined by `sampling/guidance.py`."""

    entries: tuple[CondEntry, ...]


class KeptPicture(msgspec.Struct, frozen=True, kw_only=True):
    """What a noise mask keeps of the picture that a run started from.

    Args:
        mask: float32 [1 or B, 1, [frames,] h, w], 1 where to sample, 0 where to keep.
        latents: float32 [B, C, [frames,] h, w], in the denoiser's scaled space.
        noise: the run's initial noise, like `latents`.
        by_sigma: how far the mask says from when on to sample, not how much; 0 to 1.
        start_sigma: where the run started.
    """

    mask: torch.Tensor
    latents: torch.Tensor
    noise: torch.Tensor
    by_sigma: float = 0.0
    start_sigma: float = 0.0


class SamplingRun(msgspec.Struct, frozen=True, kw_only=True):
    """A request's sampling between two evaluations.

    Args:
        state: the sampler's own tensors, in the denoiser's scaled latent space.
        generator: state of the request's own stream of sampler noise, uint8 [n].
        seed: of the request's noise, 0 to 2^64 - 1; samplers of Brownian noise need it.
        kept: what a noise mask keeps; None: the whole picture is sampled.
        guidance_memory: what the guidance keeps from one evaluation to the next, like `state.x`.
        denoised: the guided estimate of x0 at the last step's start.
    """

    state: SamplerState
    generator: torch.Tensor
    seed: int = 0
    kept: KeptPicture | None = None
    guidance_memory: torch.Tensor | None = None
    denoised: torch.Tensor | None = None


class CallResiduals(msgspec.Struct, frozen=True, kw_only=True):
    """What a ControlNet adds to one call of a denoiser.

    Args:
        blocks: float32 tensors in the order that the family says: for a UNet [B, C, h, w], one for
            each tensor that its decoder half reads and the middle block's last; for a transformer
            [B, tokens, width], for its blocks.
    """

    blocks: tuple[torch.Tensor, ...]


class Estimates(msgspec.Struct, frozen=True, kw_only=True):
    """ESTIMATES of x0 by position in the plan of an evaluation; None where another node has it."""

    calls: tuple[torch.Tensor | None, ...]


class Residuals(msgspec.Struct, frozen=True, kw_only=True):
    """RESIDUALS: by position in `sampling/calls.py`'s plan; None where it does not steer a call."""

    calls: tuple[CallResiduals | None, ...]


TREE_TYPES: Final = (
    Latent,
    AvLatent,
    CondDetails,
    CondEntry,
    Conditioning,
    SamplerState,
    KeptPicture,
    SamplingRun,
    CallResiduals,
    Residuals,
    Estimates,
)
Value = (
    Scalar
    | torch.Tensor
    | Latent
    | AvLatent
    | Conditioning
    | SamplingRun
    | Residuals
    | Estimates
    | tuple["Value", ...]
)
_BY_NAME: Final = {cls.__name__: cls for cls in TREE_TYPES}


def flatten(value: Value) -> tuple[bytes, list[torch.Tensor]]:
    """Take the tensors out of `value`: (tree, tensors in the order that the tree numbers them).

    Raises: TypeError: something inside is neither scalar, tensor, tuple nor a known struct.
    """
    tensors: list[torch.Tensor] = []

    def walk(item: object) -> object:
        if isinstance(item, torch.Tensor):
            tensors.append(item)
            return {"t": len(tensors) - 1}
        if isinstance(item, tuple):
            return {"l": [walk(part) for part in item]}
        if isinstance(item, TREE_TYPES):
            fields = {name: walk(getattr(item, name)) for name in item.__struct_fields__}
            return {"s": type(item).__name__, "f": fields}
        if item is None or isinstance(item, bool | int | float | str):
            return item
        raise TypeError(f"a value may not contain {type(item).__name__}")

    tree = msgspec.msgpack.encode(walk(value))
    return tree, tensors


def unflatten(tree: bytes, tensors: list[torch.Tensor]) -> Value:
    """The value that `flatten` took apart. Raises: KeyError, IndexError: it is not one."""

    def build(item: object) -> object:
        if not isinstance(item, dict):
            return item
        if "t" in item:
            return tensors[item["t"]]
        if "l" in item:
            return tuple(build(part) for part in item["l"])
        fields: dict[str, Any] = {name: build(part) for name, part in item["f"].items()}
        return _BY_NAME[item["s"]](**fields)

    return cast(Value, build(msgspec.msgpack.decode(tree)))
