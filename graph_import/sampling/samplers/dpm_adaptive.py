"""DPM-Solver whose steps are as long as an error estimate allows, in t = -log sigma."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import ClassVar, Final

from ..base import Array, Course, Estimate, ModelCall, Noise, NoiseKind, Sampler
from .ancestral import exploding_split
from .dpm_fast import solver_stage

NO_ERROR: Final = 1e-8  # added to an error before it is divided by
MAX_ERROR: Final = 1e8  # what stands for one that is no number: latents have overflowed
MAX_EXPONENT: Final = 700.0  # of e, in float64
AT_END: Final = 1e-5  # of t
ORDER_WITH_NOISE: Final = 1.5  # how fast errors shrink with steps that end in fresh noise


class DpmAdaptive(Sampler, frozen=True, kw_only=True):
    """Orders 2 and 3 with the next lower one for the error; a PID controller sets the step.

    Source: DPM-Solver (arXiv 2206.00927), appendix C (DPM-Solver-12 and -23), for the two solutions
    of a step; Jolicoeur-Martineau et al. (arXiv 2105.14080), algorithm 1, for the error that they
    are held against; Soderlind, Digital filters in adaptive time-stepping (2003), section 3, for
    the controller; Soderlind and Wang, Adaptive time-stepping and computational stability (2006),
    section 4, for the limit of its factor, and for rejecting a step by that factor.
    """

    name: str = "dpm_adaptive"
    order: int = 3
    rtol: float = 0.05
    atol: float = 0.0078
    h_init: float = 0.05
    pcoeff: float = 0.0
    icoeff: float = 1.0
    dcoeff: float = 0.0
    accept_safety: float = 0.81
    eta: float = 0.0
    s_noise: float = 1.0

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN
    is_adaptive: ClassVar[bool] = True

    def run(self, x: Array, course: Course, noise: Noise) -> Generator[ModelCall, Estimate, Array]:
        """From the first sigma to the last one above 0.

        Raises: ArithmeticError: the steps have come to have no length.
        """
        positive = [sigma for sigma in course.sigmas if sigma > 0.0]
        if len(positive) < 2:
            return x
        now, end = -math.log(positive[0]), -math.log(positive[-1])
        width, before = self.h_init, x
        accepted: tuple[float, ...] = ()  # the last two steps' inverse errors, the newest first
        while now < end - AT_END:
            target = min(end, now + width)
            if not target > now:
                raise ArithmeticError(
                    f"{self.name} has come to steps of no length at sigma {math.exp(-now):g}: "
                    "h_init, rtol and atol are too small, or the estimates aren't finite"
                )
            goal, up = target, 0.0
            if self.eta > 0.0:
                down, _ = exploding_split(math.exp(-now), math.exp(-target), self.eta)
                goal = min(end, -math.log(down)) if down > 0.0 else end
                up = math.sqrt(max(math.exp(-2.0 * target) - math.exp(-2.0 * goal), 0.0))
            low, high = yield from self._attempt(x, now, goal)
            inverse = 1.0 / (self._error(low, high, before) + NO_ERROR)
            inverses = (inverse, *(accepted or (inverse, inverse)))
            factor = self._factor(inverses)
            if factor >= self.accept_safety:
                before, x = low, high
                if up > 0.0:
                    x = x + noise(x, math.exp(-now), math.exp(-target)) * (up * self.s_noise)
                now, accepted = target, inverses[:2]
            width *= factor
        return x

    def _attempt(
        self, x: Array, start: float, end: float
    ) -> Generator[ModelCall, Estimate, tuple[Array, Array]]:
        """The step by the lower and by the higher order."""
        stages = tuple(
            math.exp(-(start + (end - start) * k / self.order)) for k in range(self.order + 1)
        )
        at, first, low = x, None, x
        for done, sigma in enumerate(stages[:-1]):
            estimate = yield ModelCall(at, sigma, is_step_start=done == 0)
            eps = (at - estimate.denoised) * (1.0 / sigma)
            first = eps if first is None else first
            if done == self.order - 2:
                low = self._lower(x, first, eps, stages)
            at = solver_stage(x, first, eps, stages, done)
        return low, at

    def _lower(self, x: Array, first: Array, eps: Array, stages: tuple[float, ...]) -> Array:
        h = math.log(stages[0] / stages[-1])
        low = x - first * (stages[-1] * math.expm1(h))
        if self.order == 2:
            return low
        return low - (eps - first) * (stages[-1] * math.expm1(h) * 1.5)

    def _error(self, low: Array, high: Array, before: Array) -> float:
        """The root mean square of the difference, relative to what is tolerated: to MAX_ERROR."""
        size = abs(low)
        size = size + (abs(before) - size).clip(min=0.0)
        allowed = (size * self.rtol).clip(min=self.atol)
        relative = (low - high) / allowed
        error = math.sqrt(float((relative * relative).mean()))
        return error if error < MAX_ERROR else MAX_ERROR

    def _factor(self, inverse_errors: tuple[float, ...]) -> float:
        """What the width is multiplied by, from the inverse errors of three steps, newest first.

        The order with noise is recorded from ComfyUI 0.8.0.
        """
        p, i, d = self.pcoeff, self.icoeff, self.dcoeff
        powers = (p + i + d, -(p + 2.0 * d), d)
        order = ORDER_WITH_NOISE if self.eta > 0.0 else self.order
        terms = zip(inverse_errors, powers, strict=True)
        exponent = sum(math.log(inverse) * power / order for inverse, power in terms)
        return 1.0 + math.atan(math.exp(min(exponent, MAX_EXPONENT)) - 1.0)
