"""LCM whose picture grows while it is sampled."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..base import (
    Array,
    Course,
    Estimate,
    Evaluation,
    Noise,
    NoiseKind,
    Resize,
    Sampler,
    SamplerState,
)


class LcmUpscale(Sampler, frozen=True, kw_only=True):
    """LCM (arXiv 2310.04378) on estimates that are resized on the way, in even steps of the size.

    The fresh noise goes on the whole estimate, for flows too: recorded from ComfyUI 0.8.0, as is
    the rounding of sizes. The scalars are height and width of the latents at the start.

    Args:
        scale_ratio: the last size over the first.
        scale_steps: over how many steps the size changes; below 0 half of them (recorded for six).
    """

    name: str = "lcm_upscale"
    scale_ratio: float = 1.0
    scale_steps: int = -1
    upscale_method: Literal["bislerp", "nearest-exact", "bilinear", "area", "bicubic"] = "bislerp"

    noise: ClassVar[NoiseKind] = NoiseKind.AFTER_START

    @property
    def draws_channels_last(self) -> bool:
        """ComfyUI's bislerp leaves latents in that order, and noise is drawn in the latents'."""
        return self.upscale_method == "bislerp" and self.scale_steps != 0

    def begin(self, x: Array, course: Course) -> SamplerState:
        """The start, with its size."""
        return SamplerState(x=x, scalars=(float(x.shape[-2]), float(x.shape[-1])))

    def resize(self, state: SamplerState, evaluation: Evaluation, course: Course) -> Resize | None:
        """The size grows until `scale_steps` are done."""
        count = course.num_steps // 2 if self.scale_steps < 0 else self.scale_steps
        if evaluation.step >= count:
            return None
        factor = 1.0 + (self.scale_ratio - 1.0) * (evaluation.step + 1) / count
        height, width = (max(round(side * factor), 1) for side in state.scalars)
        return Resize(height=height, width=width, method=self.upscale_method)

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """The step to 0 draws no noise."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        x = estimate.denoised
        if following > 0.0:
            x = x + noise(x, sigma, following) * following
        return SamplerState(x=x, scalars=state.scalars)
