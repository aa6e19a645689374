"""Changes of classifier-free guidance, by the ComfyUI class that asks for them.

Estimates are of x0, float32 [B, C, h, w]. A patch works before the guidance (on both estimates), in
its place, or after it. Signs and spaces that the papers leave open: recorded from ComfyUI 0.8.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import torch

from ...graph_import.sampling.guiders import CfgPatch
from ...graph_import.sampling.model_sampling import ModelSampling
from .latent_operations import sharpened, tonemap_reinhard

TINY: Final = 1e-8


@dataclass(slots=True, frozen=True)
class Guided:
    """One evaluation's estimates while they are guided.

    Args:
        x: what the model was evaluated at.
        positive: the positive side's estimate; `negative` the other's, None if it wasn't asked for.
        memory: what the run's last evaluation left for this one.
    """

    x: torch.Tensor
    sigma: float
    sampling: ModelSampling
    cfg_scale: float
    positive: torch.Tensor
    negative: torch.Tensor | None
    memory: torch.Tensor | None = None


def guided(estimates: Guided, patches: Sequence[CfgPatch]) -> tuple[torch.Tensor, Guided]:
    """The guided estimate, and the estimates that it was made of, with what is to be remembered."""
    plain = estimates
    for patch in patches:
        if patch.name in BEFORE and estimates.negative is not None:
            estimates = BEFORE[patch.name](estimates, patch)
    combined = plain_guidance(estimates)
    for patch in patches:
        if patch.name in INSTEAD and estimates.negative is not None:
            combined = INSTEAD[patch.name](estimates, patch)
    seen = replace(plain, memory=estimates.memory)
    return after_guidance(combined, seen, patches), seen


def after_guidance(
    combined: torch.Tensor, estimates: Guided, patches: Sequence[CfgPatch]
) -> torch.Tensor:
    """A guided estimate, changed by the patches that come after the guidance."""
    for patch in patches:
        if patch.name in AFTER:
            combined = AFTER[patch.name](combined, estimates, patch)
    return combined


def plain_guidance(given: Guided) -> torch.Tensor:
    """Ho and Salimans (arXiv 2207.12598); without a negative side the positive one's."""
    if given.negative is None:
        return given.positive
    return given.negative + (given.positive - given.negative) * given.cfg_scale


def _direction(given: Guided) -> tuple[torch.Tensor, torch.Tensor]:
    """The negative side's estimate and the way from it to the positive one's."""
    negative = given.positive if given.negative is None else given.negative
    return negative, given.positive - negative


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The products of a and b, picture by picture, [B, 1, 1, 1]."""
    return (a * b).sum(dim=(1, 2, 3), keepdim=True)


def _adaptive_projection(given: Guided, patch: CfgPatch) -> Guided:
    """APG: the way's part along the estimate is weakened, its length and its swings limited.

    The guidance goes on from the positive estimate. Source: Sadat et al. (arXiv 2410.02416),
    algorithm 1.
    """
    _, way = _direction(given)
    momentum, limit = patch.number("momentum"), patch.number("norm_threshold")
    if given.memory is not None and given.memory.shape == way.shape:
        way = way + momentum * given.memory
    memory = way if momentum else None
    if limit > 0.0:
        length = _dot(way, way).sqrt()
        way = way * (limit / length).clamp(max=1.0)
    along = given.positive / _dot(given.positive, given.positive).sqrt().clamp(min=TINY)
    parallel = _dot(way, along) * along
    changed = (way - parallel) + parallel * patch.number("eta")
    return replace(given, positive=given.positive + changed, negative=given.positive, memory=memory)


def _tangential_damping(given: Guided, patch: CfgPatch) -> Guided:
    """TCFG: the negative score keeps what lies along the scores' first singular vector.

    Source: Kwon et al. (arXiv 2503.18137), section 4.
    """
    negative, _ = _direction(given)
    scores = [(given.x - side).flatten(1) for side in (given.positive, negative)]
    _, _, vectors = torch.linalg.svd(torch.stack(scores, dim=1), full_matrices=False)
    first = vectors[:, 0]
    kept = (scores[1] * first).sum(dim=1, keepdim=True) * first
    return replace(given, negative=given.x - kept.reshape(given.x.shape))


def _frequency_scaling(given: Guided, patch: CfgPatch) -> Guided:
    """FreSca: low and high frequencies of the way are scaled apart.

    Source: Huang et al. (arXiv 2504.02154), section 3.
    """
    negative, way = _direction(given)
    height, width = way.shape[-2:]
    reach = int(patch.number("freq_cutoff"))
    scale = torch.full((height, width), patch.number("scale_high"), device=way.device)
    rows, columns = (_around(side // 2, reach) for side in (height, width))
    scale[rows, columns] = patch.number("scale_low")
    spectrum = torch.fft.fftshift(torch.fft.fft2(way), dim=(-2, -1)) * scale
    scaled = torch.fft.ifft2(torch.fft.ifftshift(spectrum, dim=(-2, -1))).real
    return replace(given, positive=negative + scaled, negative=negative)


def _around(middle: int, reach: int) -> slice:
    return slice(max(middle - reach, 0), middle + reach)


def _tonemapped(given: Guided, patch: CfgPatch) -> Guided:
    negative, way = _direction(given)
    changed = tonemap_reinhard(way, patch.number("multiplier"))
    return replace(given, positive=negative + changed, negative=negative)


def _sharpened(given: Guided, patch: CfgPatch) -> Guided:
    negative, way = _direction(given)
    radius, sigma, alpha = (patch.number(n) for n in ("sharpen_radius", "sigma", "alpha"))
    changed = sharpened(way, int(radius), sigma, alpha)
    return replace(given, positive=negative + changed, negative=negative)


def _rescaled(given: Guided, patch: CfgPatch) -> torch.Tensor:
    """RescaleCFG: the guided v prediction with the deviation of the positive one's, in part.

    Source: Lin et al. (arXiv 2305.08891), section 3.4.
    """
    share, variance = patch.number("multiplier"), given.sigma * given.sigma + 1.0
    kept, root = given.x / variance, variance**0.5
    positive = (kept - given.positive) * (root / given.sigma)
    guided_v = (kept - plain_guidance(given)) * (root / given.sigma)
    ratio = _deviation(positive) / _deviation(guided_v)
    mixed = guided_v * (share * ratio + (1.0 - share))
    rescaled: torch.Tensor = kept - mixed * (given.sigma / root)
    return rescaled


def _deviation(estimate: torch.Tensor) -> torch.Tensor:
    return estimate.std(dim=(1, 2, 3), keepdim=True)


def _rising_over_frames(given: Guided, patch: CfgPatch) -> torch.Tensor:
    """The scale rises from picture to picture. Source: SVD (arXiv 2311.15127), appendix D.3."""
    negative, way = _direction(given)
    scales = torch.linspace(patch.number("min_cfg"), given.cfg_scale, len(way))
    return negative + way * scales.reshape(-1, 1, 1, 1).to(way.device)


def _triangle_over_frames(given: Guided, patch: CfgPatch) -> torch.Tensor:
    """The scale rises to the middle picture and falls. Source: SV3D (arXiv 2403.12008), 3.2."""
    negative, way = _direction(given)
    least = patch.number("min_cfg")
    place = torch.linspace(0.0, 1.0, len(way))
    height = 1.0 - (2.0 * place - 1.0).abs()
    scales = least + (given.cfg_scale - least) * height
    return negative + way * scales.reshape(-1, 1, 1, 1).to(way.device)


def _renormalized(given: Guided, patch: CfgPatch) -> torch.Tensor:
    """RenormCFG: no guidance above a noise level; the guided estimate no longer than allowed.

    Source: Lumina-Image 2.0 (arXiv 2503.21758), section 3.5, CFG-Renorm and CFG-Trunc. Lengths are
    of the whole batch.
    """
    if given.sigma >= patch.number("cfg_trunc"):
        return given.positive
    combined, limit = plain_guidance(given), patch.number("renorm_cfg")
    if limit <= 0.0:
        return combined
    longest = torch.linalg.vector_norm(given.positive) * limit
    length = torch.linalg.vector_norm(combined)
    return combined * (longest / length) if bool(length >= longest) else combined


def _zero_star(combined: torch.Tensor, given: Guided, patch: CfgPatch) -> torch.Tensor:
    """CFG-Zero*: the negative estimate is scaled towards the positive one first.

    Source: Fan et al. (arXiv 2503.18886), section 4; the factor is that of the predicted noises.
    """
    if given.negative is None:
        return combined
    positive, negative = given.x - given.positive, given.x - given.negative
    factor = _dot(positive, negative) / (_dot(negative, negative) + TINY)
    return combined + given.negative * ((factor - 1.0) * (1.0 - given.cfg_scale))


def _norm_limited(combined: torch.Tensor, given: Guided, patch: CfgPatch) -> torch.Tensor:
    """CFGNorm: channel vectors no longer than the positive estimate's, times a strength.

    Source: CFG-Renorm of Lumina-Image 2.0 (arXiv 2503.21758, section 3.5), place by place; where
    the strength comes in is recorded from ComfyUI 0.8.0.
    """
    positive = torch.linalg.vector_norm(given.positive, dim=1, keepdim=True)
    length = torch.linalg.vector_norm(combined, dim=1, keepdim=True)
    limit = (positive / (length + TINY)).clamp(0.0, 1.0)
    limited: torch.Tensor = combined * limit * patch.number("strength")
    return limited


def _epsilon_scaled(combined: torch.Tensor, given: Guided, patch: CfgPatch) -> torch.Tensor:
    """The predicted noise divided by a factor. Source: Ning et al. (arXiv 2308.15321), sec. 4."""
    return given.x - (given.x - combined) / patch.number("scaling_factor")


def _score_rescaled(combined: torch.Tensor, given: Guided, patch: CfgPatch) -> torch.Tensor:
    """Temporal score rescaling: the score grows as if the data were narrower.

    Source: Xu et al. (arXiv 2510.01184), equation 9, with the signal-to-noise ratio of `sigma`.
    """
    sigma, share = given.sigma, 1.0 - given.sigma if given.sampling.is_flow else 1.0
    if share <= 0.0:
        return combined
    snr = (share / sigma) ** 2 * patch.number("tsr_sigma") ** 2
    ratio = (snr + 1.0) / (snr / patch.number("tsr_k") + 1.0)
    noise = (given.x - combined * share) * ratio
    return (given.x - noise) / share


Before = Callable[[Guided, CfgPatch], Guided]
Instead = Callable[[Guided, CfgPatch], torch.Tensor]
After = Callable[[torch.Tensor, Guided, CfgPatch], torch.Tensor]
BEFORE: Final[Mapping[str, Before]] = MappingProxyType(
    {
        "APG": _adaptive_projection,
        "TCFG": _tangential_damping,
        "FreSca": _frequency_scaling,
        "LatentOperationTonemapReinhard": _tonemapped,
        "LatentOperationSharpen": _sharpened,
    }
)
INSTEAD: Final[Mapping[str, Instead]] = MappingProxyType(
    {
        "RescaleCFG": _rescaled,
        "VideoLinearCFGGuidance": _rising_over_frames,
        "VideoTriangleCFGGuidance": _triangle_over_frames,
        "RenormCFG": _renormalized,
    }
)
AFTER: Final[Mapping[str, After]] = MappingProxyType(
    {
        "CFGZeroStar": _zero_star,
        "CFGNorm": _norm_limited,
        "EpsilonScaling": _epsilon_scaled,
        "TemporalScoreRescaling": _score_rescaled,
    }
)
