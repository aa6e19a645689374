"""Sampler noise from one Brownian path over sigma, rebuilt where a step runs from (seed, range).

Finer schedules then see the same path. Source: Li et al. (arXiv 2001.01328), section 4, for the
virtual tree; torchsde has it.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from ...graph_import.sampling.base import Course, NoiseKind, Sampler
from ..values import SamplingRun
from .noise import NoiseStream

DIGITS: Final = 6  # to which the tree rounds its ends
SHORTEST: Final = 1e-6  # the tree's tolerance: below it splits an interval for ever


class BrownianNoise:
    """Increments of the path of `seed` between sigmas; implements `sampling.base.Noise`.

    It is asked for what it needs at once and keeps nothing: the same question, the same answer.

    Args:
        low, high: the smallest positive and the largest sigma of the schedule.
        generator: state of the request's stream, which this one leaves as it is.
    """

    def __init__(self, seed: int, low: float, high: float, generator: torch.Tensor) -> None:
        self._seed = seed
        self._ends = round(low, DIGITS), round(high, DIGITS)
        self._generator = generator

    def __call__(self, like: torch.Tensor, sigma_from: float, sigma_to: float) -> torch.Tensor:
        """The increment from `sigma_from` to `sigma_to`, at unit variance, as `like`.

        It is 0 where they are so near, within the ends, that the path says nothing.
        """
        import torchsde

        low, high = self._ends
        later = min(max(sigma_from, sigma_to), high)
        earlier = max(min(sigma_from, sigma_to), low)
        if later - earlier < SHORTEST:
            return torch.zeros_like(like)
        start = torch.zeros_like(like, device="cpu")
        tree = torchsde.BrownianTree(t0=low, w0=start, t1=high, entropy=self._seed)
        increment = tree(earlier, later)
        sign = 1.0 if sigma_to > sigma_from else -1.0
        scaled: torch.Tensor = increment * (sign / math.sqrt(later - earlier))
        return scaled.to(like.device)

    def state(self) -> torch.Tensor:
        """The stream's state, unchanged."""
        return self._generator


def sampler_noise(
    run: SamplingRun, sampler: Sampler, course: Course
) -> NoiseStream | BrownianNoise:
    """The noise of the run's next update."""
    if sampler.noise is not NoiseKind.BROWNIAN:
        return NoiseStream(run.generator, is_channels_last=sampler.draws_channels_last)
    positive = [sigma for sigma in course.sigmas if sigma > 0.0]
    return BrownianNoise(run.seed, min(positive), max(positive), run.generator)
