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


class CondEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One text on one side of the guidance, and where and when it counts.

    Args:
        cond: float32 [1, tokens, width].
        pooled: float32 [1, width] or None.
        area: (unit, height, width, y, x); the unit is `latent` or `percentage`.
        strength: weight of the entry within its side.
        mask: float32 [B or 1, H, W]; `is_mask_bounds` crops to where it is not zero.
        start_percent, end_percent: part of the sampling in which it counts.
        controls: markers of the ControlNets that steer it, in order.
        concat_latent: unscaled latents that an inpainting denoiser takes as further channels.
        concat_mask: float32 mask that goes with them.
    """

    cond: torch.Tensor
    pooled: torch.Tensor | None
    area: tuple[str, float, float, float, float] | None = None
    strength: float = 1.0
    mask: torch.Tensor | None = None
    mask_strength: float = 1.0
    is_mask_bounds: bool = False
    start_percent: float = 0.0
    end_percent: float = 1.0
    controls: tuple[str, ...] = ()
    concat_latent: torch.Tensor | None = None
    concat_mask: torch.Tensor | None = None


class Conditioning(msgspec.Struct, frozen=True, kw_only=True):
    """What steers a denoiser: the entries are combined by `sampling/guidance.py`."""

    entries: tuple[CondEntry, ...]


class KeptPicture(msgspec.Struct, frozen=True, kw_only=True):
    """What a noise mask keeps of the picture that a run started from.

    Args:
        mask: float32 [1 or B, 1, h, w], 1 where to sample, 0 where to keep.
        latents: float32 [B, C, h, w], in the denoiser's scaled space.
        noise: the run's initial noise, like `latents`.
    """

    mask: torch.Tensor
    latents: torch.Tensor
    noise: torch.Tensor


class SamplingRun(msgspec.Struct, frozen=True, kw_only=True):
    """A request's sampling between two evaluations.

    Args:
        state: the sampler's own tensors, in the denoiser's scaled latent space.
        generator: state of the request's own stream of sampler noise, uint8 [n].
        seed: of the request's noise, 0 to 2^64 - 1; samplers of Brownian noise need it.
        kept: what a noise mask keeps; None: the whole picture is sampled.
        guidance_memory: what the guidance keeps from one evaluation to the next, like `state.x`.
        denoised: the last evaluation's guided estimate of x0.
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


class Residuals(msgspec.Struct, frozen=True, kw_only=True):
    """RESIDUALS: by position in `sampling/calls.py`'s plan; None where it does not steer a call."""

    calls: tuple[CallResiduals | None, ...]


TREE_TYPES: Final = (
    Latent,
    CondEntry,
    Conditioning,
    SamplerState,
    KeptPicture,
    SamplingRun,
    CallResiduals,
    Residuals,
)
Value = (
    Scalar | torch.Tensor | Latent | Conditioning | SamplingRun | Residuals | tuple["Value", ...]
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
