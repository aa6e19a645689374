"""Sigma schedules of nodes of their own, in ComfyUI's parameters: falling floats, the last 0.0."""

from __future__ import annotations

import math
from typing import Final

from .float32 import float32, spaced_float32
from .model_sampling import ModelSampling
from .model_sampling_flow import FluxModelSampling, token_mu
from .schedules import MAX_SCHEDULE_STEPS, beta_shaped, spaced
from .sigma_lists import written

TURBO_TIMESTEPS: Final = 10  # a distilled model knows every hundredth timestep
FLUX2_TOKEN: Final = 16  # pixels along one side of a token
FLUX2_MANY_TOKENS: Final = 4300  # from here on the number of steps doesn't matter
LTXV_TOKENS: Final = 4096  # of a video of the usual size
LTXV_BETWEEN: Final = (1024.0, 4096.0)  # tokens that base_shift and max_shift are for; as recorded
LAPLACE_TAIL: Final = 1e-5  # keeps the ends finite; as recorded from ComfyUI 0.8.0


def beta_sampling_sigmas(
    model_sampling: ModelSampling, steps: int, alpha: float, beta: float
) -> tuple[float, ...]:
    """The table's entries at the quantiles of Beta(alpha, beta)."""
    return tuple(beta_shaped(model_sampling, steps, alpha, beta))


def turbo_sigmas(model_sampling: ModelSampling, steps: int, denoise: float) -> tuple[float, ...]:
    """The first `steps` of the ten timesteps of SD Turbo, from the share `denoise` of them on.

    Source: ADD (arXiv 2311.17042), section 3.1: every n-th of the teacher's timesteps.
    """
    first = TURBO_TIMESTEPS - int(TURBO_TIMESTEPS * denoise)
    known = [round(999 - 100 * index) for index in range(TURBO_TIMESTEPS)]
    chosen = known[first : first + steps]
    return (*(model_sampling.sigma_at(timestep) for timestep in chosen), 0.0)


def percent_sigma(model_sampling: ModelSampling, percent: float, *, is_actual: bool) -> float:
    """The sigma at a share of the sampling; an actual one is within the model's noise levels."""
    sigma = model_sampling.percent_to_sigma(percent)
    if is_actual and percent <= 0.0:
        return model_sampling.sigma_max
    if is_actual and percent >= 1.0:
        return model_sampling.sigma_min
    return sigma


def karras_sigmas(steps: int, sigma_max: float, sigma_min: float, rho: float) -> tuple[float, ...]:
    """Evenly spaced in sigma^(1/rho). Source: Karras et al. (arXiv 2206.00364), equation 5."""
    first, last = sigma_max ** (1.0 / rho), sigma_min ** (1.0 / rho)
    return (*(root**rho for root in spaced(first, last, steps)), 0.0)


def polyexponential_sigmas(
    steps: int, sigma_max: float, sigma_min: float, rho: float
) -> tuple[float, ...]:
    """Log-sigma falls as a power of an even ramp; rho 1 is even in log-sigma.

    Raises: ValueError: a sigma is 0.
    """
    low, high = math.log(sigma_min), math.log(sigma_max)
    ramp = (place**rho for place in spaced(1.0, 0.0, steps))
    return (*(math.exp(low + (high - low) * place) for place in ramp), 0.0)


def laplace_sigmas(
    steps: int, sigma_max: float, sigma_min: float, mu: float, beta: float
) -> tuple[float, ...]:
    """Even quantiles of a Laplace distribution of log-sigma, from the top; no 0.0 behind them.

    Source: Hang et al. (arXiv 2407.03297), table 1.
    """
    sigmas: list[float] = []
    for place in spaced(0.0, 1.0, steps):
        tail = 1.0 - 2.0 * abs(0.5 - place) + LAPLACE_TAIL
        side = math.copysign(1.0, 0.5 - place) if place != 0.5 else 0.0
        sigma = math.exp(mu - beta * side * math.log(tail))
        sigmas.append(min(max(sigma, sigma_min), sigma_max))
    return tuple(sigmas)


def vp_sigmas(steps: int, beta_d: float, beta_min: float, eps_s: float) -> tuple[float, ...]:
    """Even times of a variance-preserving SDE, from 1 to `eps_s`. Raises: OverflowError.

    Each step is rounded to float32, as recorded from ComfyUI 0.8.0: at sigma 150 that is more than
    1e-5. Source: Song et al. (arXiv 2011.13456), in the form of Karras et
    al. (2206.00364), table 1.
    """
    sigmas: list[float] = []
    for time in spaced_float32(1.0, eps_s, steps):
        quadratic = float32(float32(beta_d) * float32(time * time)) / 2.0
        exponent = float32(quadratic + float32(float32(beta_min) * time))
        sigmas.append(float32(math.sqrt(float32(math.expm1(exponent)))))
    return (*sigmas, 0.0)


def flux2_sigmas(steps: int, width: int, height: int) -> tuple[float, ...]:
    """Even timesteps, shifted by a mu for the size and the number of steps.

    Source: the reference implementation of FLUX.2 [dev] (Apache 2.0): two lines through its
    figures for 10 and for 200 steps; the schedules recorded from ComfyUI 0.8.0 are the same.
    """
    num_tokens = round(width * height / (FLUX2_TOKEN * FLUX2_TOKEN))
    mu_of_200 = 0.00016927 * num_tokens + 0.45666666
    if num_tokens > FLUX2_MANY_TOKENS:
        return _shifted_evenly(steps, mu_of_200)
    mu_of_10 = 8.73809524e-05 * num_tokens + 1.89833333
    slope = (mu_of_200 - mu_of_10) / 190.0
    return _shifted_evenly(steps, mu_of_200 + slope * (steps - 200.0))


def ltxv_sigmas(
    steps: int, max_shift: float, base_shift: float, terminal: float, *, is_stretched: bool
) -> tuple[float, ...]:
    """Even timesteps, shifted as for LTXV_TOKENS; stretched, the last but 0 is `terminal`.

    Source: LTX-Video (arXiv 2501.00103).
    """
    mu = token_mu(LTXV_TOKENS, at=LTXV_BETWEEN, mu=(base_shift, max_shift))
    sigmas = _shifted_evenly(steps, mu)
    lowest = sigmas[-2]
    if not is_stretched or lowest == 1.0:
        return sigmas
    stretch = (1.0 - terminal) / (1.0 - lowest)
    return (*(1.0 - (1.0 - sigma) * stretch for sigma in sigmas[:-1]), 0.0)


def written_sigmas(text: str) -> tuple[float, ...]:
    """The numbers of a text. Raises: ValueError: too many."""
    sigmas = written(text)
    if len(sigmas) > MAX_SCHEDULE_STEPS:
        raise ValueError(f"{len(sigmas)} sigmas are too many; {MAX_SCHEDULE_STEPS} are possible")
    return sigmas


def _shifted_evenly(steps: int, mu: float) -> tuple[float, ...]:
    flow = FluxModelSampling(mu=mu)
    return tuple(flow.sigma_at(1.0 - index / steps) for index in range(steps + 1))
