"""Sigma schedules by ComfyUI's names: n steps give n+1 falling sigmas, the last 0.0.

`ddim_uniform` may give more, `beta` fewer. All are plain floats, from a model's sigma table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from .beta_quantile import beta_quantile, symmetric_beta_quantile
from .float32 import float32, spaced_float32
from .model_sampling import ModelSampling

MAX_SCHEDULE_STEPS: Final = 20_000  # a denoise near 0 asks for steps/denoise of them
DISCARD_PENULTIMATE: Final = frozenset({"dpm_2", "dpm_2_ancestral", "uni_pc", "uni_pc_bh2"})
FULL_DENOISE: Final = 0.9999  # above it nothing is cut off; as recorded from ComfyUI 0.8.0

KARRAS_RHO: Final = 7.0
BETA_SHAPE: Final = 0.6
LINEAR_QUADRATIC_THRESHOLD: Final = 0.025

Schedule = Callable[[ModelSampling, int], list[float]]


def spaced(first: float, last: float, count: int) -> list[float]:
    """`count` evenly spaced numbers from `first` to `last`; one alone is `first`."""
    if count == 1:
        return [first]
    return [first + (last - first) * index / (count - 1) for index in range(count)]


def _ends(sampling: ModelSampling) -> tuple[float, float]:
    """The timesteps of the highest and the lowest sigma; a flow will shift these once more."""
    return sampling.timestep(sampling.sigma_max), sampling.timestep(sampling.sigma_min)


def simple(sampling: ModelSampling, steps: int) -> list[float]:
    """Every (table length / steps)-th entry of the table, from its top."""
    stride = len(sampling.sigmas) / steps  # a float, and rounded after the product, as there
    return [sampling.sigmas[-1 - int(index * stride)] for index in range(steps)] + [0.0]


def sgm_uniform(sampling: ModelSampling, steps: int) -> list[float]:
    """Evenly spaced timesteps, stopping one spacing before the lowest; from SDXL's own sampler."""
    timesteps = spaced(*_ends(sampling), steps + 1)[:-1]
    return [sampling.sigma_at(timestep) for timestep in timesteps] + [0.0]


def karras(sampling: ModelSampling, steps: int) -> list[float]:
    """Evenly spaced in sigma^(1/7). Source: Karras et al. (arXiv 2206.00364), equation 5.

    Rounded to float32 where ComfyUI's tensors are, which gives its sigmas bit for bit: samplers
    that draw from a Brownian path have other noise at a sigma that is the least bit off.
    """
    ends = (float32(sampling.sigma_max), float32(sampling.sigma_min))
    first, last = (end ** (1.0 / KARRAS_RHO) for end in ends)
    way = float32(last - first)
    shares = spaced_float32(0.0, 1.0, steps)
    roots = [float32(float32(first) + float32(share * way)) for share in shares]
    return [float32(root**KARRAS_RHO) for root in roots] + [0.0]


def exponential(sampling: ModelSampling, steps: int) -> list[float]:
    """Evenly spaced in log sigma."""
    first, last = math.log(sampling.sigma_max), math.log(sampling.sigma_min)
    return [math.exp(log_sigma) for log_sigma in spaced(first, last, steps)] + [0.0]


def ddim_uniform(sampling: ModelSampling, steps: int) -> list[float]:
    """Every floor(table length / steps)-th entry from the second on. Source: DDIM (2010.02502)."""
    stride = max(len(sampling.sigmas) // steps, 1)
    return [*reversed(sampling.sigmas[1::stride]), 0.0]


def beta(sampling: ModelSampling, steps: int) -> list[float]:
    """Entries at the quantiles of Beta(0.6, 0.6), repeats left out. Source: arXiv 2407.12173."""
    return _at_shares(
        sampling,
        (symmetric_beta_quantile(1.0 - index / steps, BETA_SHAPE) for index in range(steps)),
    )


def beta_shaped(sampling: ModelSampling, steps: int, alpha: float, beta: float) -> list[float]:
    """`beta` with the quantiles of Beta(alpha, beta)."""
    return _at_shares(
        sampling, (beta_quantile(1.0 - index / steps, alpha, beta) for index in range(steps))
    )


def _at_shares(sampling: ModelSampling, shares: Iterable[float]) -> list[float]:
    """The table's entries at these shares (0 to 1) of it, each once, and 0.0."""
    top = len(sampling.sigmas) - 1
    chosen: list[int] = []
    for share in shares:
        entry = round(share * top)
        if not chosen or entry != chosen[-1]:
            chosen.append(entry)
    return [sampling.sigmas[entry] for entry in chosen] + [0.0]


def normal(sampling: ModelSampling, steps: int) -> list[float]:
    """Evenly spaced timesteps from the highest to the lowest."""
    timesteps = spaced(*_ends(sampling), steps)
    return [sampling.sigma_at(timestep) for timestep in timesteps] + [0.0]


def linear_quadratic(sampling: ModelSampling, steps: int) -> list[float]:
    """Half of the steps remove the first 2.5 % evenly, the rest the remainder along a parabola.

    The parabola goes on with the line's slope and ends at 0. Source: Movie Gen (arXiv 2410.13720),
    section 3.4.2.
    """
    if steps == 1:
        return [sampling.sigma_max, 0.0]
    num_linear = steps // 2
    num_curved = steps - num_linear
    slope = LINEAR_QUADRATIC_THRESHOLD / num_linear
    rest = 1.0 - LINEAR_QUADRATIC_THRESHOLD - slope * num_curved
    sigmas: list[float] = []
    for index in range(steps):
        curved = max(index - num_linear, 0) / num_curved
        sigmas.append(sampling.sigma_max * (1.0 - slope * index - rest * curved * curved))
    return [*sigmas, 0.0]


def kl_optimal(sampling: ModelSampling, steps: int) -> list[float]:
    """Evenly spaced in arctan sigma. Source: Align Your Steps (arXiv 2404.14507), theorem 3.1.

    One step starts at sigma_max (ComfyUI divides by zero there). Angles are float32 numbers, as
    there: near 90 degrees their tangents differ, and that of a flow's first one is 1 again.
    """
    ends = (float32(math.atan(sampling.sigma_max)), float32(math.atan(sampling.sigma_min)))
    angles = (float32(angle) for angle in spaced(*ends, steps))
    return [float32(math.tan(angle)) for angle in angles] + [0.0]


SCHEDULES: Final[Mapping[str, Schedule]] = MappingProxyType(
    {
        "simple": simple,
        "sgm_uniform": sgm_uniform,
        "karras": karras,
        "exponential": exponential,
        "ddim_uniform": ddim_uniform,
        "beta": beta,
        "normal": normal,
        "linear_quadratic": linear_quadratic,
        "kl_optimal": kl_optimal,
    }
)
SCHEDULE_NAMES: Final = tuple(SCHEDULES)  # in ComfyUI's order


def ksampler_sigmas(
    model_sampling: ModelSampling,
    scheduler: str,
    steps: int,
    denoise: float,
    sampler: str,
) -> tuple[float, ...]:
    """The sigmas that a KSampler hands to its sampler; () for a `denoise` of 0: nothing to do.

    A `denoise` below 1 takes the last steps+1 sigmas of a schedule of steps/denoise steps. Samplers
    that want no small last step get a schedule of one step more without its last but one sigma.

    Raises: KeyError: no schedule is called `scheduler`. ValueError: `steps` is below 1, or
    steps/denoise above MAX_SCHEDULE_STEPS.
    """
    schedule = SCHEDULES[scheduler]
    if denoise <= 0.0:
        return ()
    total_steps = _total_steps(steps, denoise, FULL_DENOISE)
    if sampler in DISCARD_PENULTIMATE:
        sigmas = schedule(model_sampling, total_steps + 1)
        del sigmas[-2]
    else:
        sigmas = schedule(model_sampling, total_steps)
    is_cut = denoise <= FULL_DENOISE
    return tuple(sigmas[-(steps + 1) :] if is_cut else sigmas)


def basic_sigmas(
    model_sampling: ModelSampling, scheduler: str, steps: int, denoise: float
) -> tuple[float, ...]:
    """The sigmas of a BasicScheduler: the last steps+1, of a schedule of steps/denoise steps.

    No sampler has a say in it; () for a `denoise` of 0. Raises, as `ksampler_sigmas`.
    """
    if denoise <= 0.0:
        return ()
    sigmas = SCHEDULES[scheduler](model_sampling, _total_steps(steps, denoise, 1.0))
    return tuple(sigmas[-(steps + 1) :])


def _total_steps(steps: int, denoise: float, full: float) -> int:
    """Steps of the schedule whose last `steps` are done. Raises: ValueError: none, or too many."""
    total_steps = steps if denoise > full else int(min(steps / denoise, 1e9))
    if not 1 <= steps <= total_steps <= MAX_SCHEDULE_STEPS:
        raise ValueError(
            f"steps {steps} at denoise {denoise} need a schedule of {total_steps} steps; "
            f"1 to {MAX_SCHEDULE_STEPS} are possible"
        )
    return total_steps


def step_window(
    sigmas: tuple[float, ...], *, start: int, end: int, keeps_noise: bool
) -> tuple[float, ...]:
    """Steps `start` to `end` (not included) of a schedule; () if there are none.

    A window that ends before the schedule does ends at 0.0, unless it `keeps_noise`.
    """
    cut = sigmas[: end + 1]
    if len(cut) < len(sigmas) and not keeps_noise:
        cut = (*cut[:-1], 0.0)
    return cut[start:] if start < len(cut) - 1 else ()
