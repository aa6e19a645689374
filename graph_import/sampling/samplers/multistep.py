"""Adams-Bashforth methods on dx/dsigma: the slope is extrapolated from earlier steps' slopes."""

from __future__ import annotations

from typing import Final

from ..base import Course, Estimate, Evaluation, Noise, Sampler, SamplerState
from .lagrange import lagrange_weights
from .linear import summed

EVEN: Final = (
    (1.0,),
    (3.0 / 2.0, -1.0 / 2.0),
    (23.0 / 12.0, -16.0 / 12.0, 5.0 / 12.0),
    (55.0 / 24.0, -59.0 / 24.0, 37.0 / 24.0, -9.0 / 24.0),
)


class Lms(Sampler, frozen=True, kw_only=True):
    """Linear multistep with the steps' true widths, up to `order`. The history: earlier slopes.

    Source: Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, section III.1.
    """

    name: str = "lms"
    order: int = 4

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """One step along the extrapolated slope; the step to 0 gives the denoised latents."""
        step, sigmas = evaluation.step, course.sigmas
        sigma, following = sigmas[step], sigmas[step + 1]
        if following == 0.0:
            return SamplerState(x=estimate.denoised)
        slope = (state.x - estimate.denoised) * (1.0 / sigma)
        slopes = (slope, *state.history)[: self.order]
        nodes = tuple(sigmas[step - k] for k in range(len(slopes)))
        if len(set(nodes)) < len(nodes):  # a step of no length says nothing of the slope's change
            slopes, nodes = slopes[:1], nodes[:1]
        weights = self._weights(nodes, following)
        return SamplerState(x=summed(state.x, slopes, weights), history=slopes[: self.order - 1])

    def _weights(self, nodes: tuple[float, ...], following: float) -> tuple[float, ...]:
        return lagrange_weights(nodes, nodes[0], following)


class Ipndm(Lms, frozen=True, kw_only=True):
    """The weights of even steps. Source: DEIS (arXiv 2204.13902), iPNDM."""

    name: str = "ipndm"
    order: int = 4

    def _weights(self, nodes: tuple[float, ...], following: float) -> tuple[float, ...]:
        return tuple(weight * (following - nodes[0]) for weight in EVEN[len(nodes) - 1])
