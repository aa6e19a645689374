"""Adams-Bashforth methods on dx/dsigma: the slope is extrapolated from earlier steps' slopes."""

from __future__ import annotations

from typing import Final

from ..base import Array, Course, Estimate, Evaluation, Noise, Sampler, SamplerState

EVEN: Final = (
    (1.0,),
    (3.0 / 2.0, -1.0 / 2.0),
    (23.0 / 12.0, -16.0 / 12.0, 5.0 / 12.0),
    (55.0 / 24.0, -59.0 / 24.0, 37.0 / 24.0, -9.0 / 24.0),
)


def lagrange_weights(nodes: tuple[float, ...], start: float, end: float) -> tuple[float, ...]:
    """For each node the integral, from `start` to `end`, of its Lagrange polynomial; exact."""
    weights: list[float] = []
    for k, node in enumerate(nodes):
        polynomial = [1.0]  # in powers of (s - start), lowest first
        for other in (n for j, n in enumerate(nodes) if j != k):
            root, scale = other - start, 1.0 / (node - other)
            raised = [0.0, *polynomial]
            polynomial = [
                (a - root * b) * scale for a, b in zip(raised, [*polynomial, 0.0], strict=True)
            ]
        width = end - start
        weights.append(sum(c * width ** (p + 1) / (p + 1) for p, c in enumerate(polynomial)))
    return tuple(weights)


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
        return SamplerState(x=_moved(state.x, slopes, weights), history=slopes[: self.order - 1])

    def _weights(self, nodes: tuple[float, ...], following: float) -> tuple[float, ...]:
        return lagrange_weights(nodes, nodes[0], following)


class Ipndm(Lms, frozen=True, kw_only=True):
    """The weights of even steps. Source: DEIS (arXiv 2204.13902), iPNDM."""

    name: str = "ipndm"
    order: int = 4

    def _weights(self, nodes: tuple[float, ...], following: float) -> tuple[float, ...]:
        return tuple(weight * (following - nodes[0]) for weight in EVEN[len(nodes) - 1])


def _moved(x: Array, slopes: tuple[Array, ...], weights: tuple[float, ...]) -> Array:
    for slope, weight in zip(slopes, weights, strict=True):
        x = x + slope * weight
    return x
