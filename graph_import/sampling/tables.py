"""Schedules that were searched for and published as tables.

Numbers as recorded from ComfyUI 0.8.0, to the places that the recordings show. Between their points
they are filled evenly in log-sigma; the last point of a table follows from a filled schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

Sigmas = tuple[float, ...]

# Align Your Steps (arXiv 2404.14507), appendix: ten steps.
ALIGN_YOUR_STEPS: Final[Mapping[str, Sigmas]] = MappingProxyType(
    {
        "SD1": (
            14.6146412,
            6.474576,
            3.86367464,
            2.69461513,
            1.88419211,
            1.39438045,
            0.964258373,
            0.652368605,
            0.397745639,
            0.151523262,
            0.029167158,
        ),
        "SDXL": (
            14.6146412,
            6.31844854,
            3.76817894,
            2.18114805,
            1.34052444,
            0.86207211,
            0.555069327,
            0.379854083,
            0.233236417,
            0.111418821,
            0.029167158,
        ),
        "SVD": (
            700.0,
            54.5,
            15.8859997,
            7.97700024,
            4.24800014,
            1.78900003,
            0.981000006,
            0.402999997,
            0.172999993,
            0.0340000018,
            0.002,
        ),
    }
)
# Optimal Stepsize (arXiv 2503.21774); None where no recorded schedule shows the point. Chroma's
# schedules of 12 steps fall between those of 20 as if there were 41 points.
OPTIMAL_STEPS: Final[Mapping[str, tuple[float | None, ...]]] = MappingProxyType(
    {
        "FLUX": (
            0.9968,
            0.9886,
            0.9819,
            0.975,
            0.966,
            0.9471,
            0.9158,
            0.8287,
            0.5512,
            0.2808,
            0.001,
        ),
        "Wan": (
            1.0,
            0.997,
            0.995,
            0.993,
            0.991,
            0.989,
            0.987,
            0.985,
            0.98,
            0.975,
            0.973,
            0.968,
            0.96,
            0.946,
            0.927,
            0.902,
            0.864,
            0.776,
            0.539,
            0.208,
            None,
        ),
        "Chroma": (
            0.992,
            None,
            0.988,
            None,
            0.982,
            None,
            0.973,
            None,
            0.961,
            None,
            0.943,
            None,
            0.917,
            None,
            0.881,
            None,
            0.832,
            None,
            0.769,
            None,
            0.69,
            None,
            0.599,
            0.55,
            0.501,
            None,
            0.402,
            0.355,
            0.311,
            None,
            0.232,
            None,
            0.169,
            0.143,
            0.12,
            None,
            0.084,
            0.07,
            0.058,
            None,
            None,
        ),
    }
)

# GITS (arXiv 2405.11326): the schedules that are recorded, by coefficient and number of steps; the
# last sigmas of them.
GITS: Final[Mapping[tuple[float, int], Sigmas]] = MappingProxyType(
    {
        (1.2, 10): (
            14.6146412,
            5.85520077,
            2.84484982,
            1.67050016,
            1.08895338,
            0.748070478,
            0.501183808,
            0.32104823,
            0.198949158,
            0.0982453227,
            0.0,
        ),
        (0.8, 4): (14.6146412, 11.5454187, 7.49001646, 3.07277966, 0.0),
        (1.5, 20): (
            0.343706042,
            0.32104823,
            0.298078328,
            0.274642885,
            0.25053367,
            0.225453854,
            0.198949158,
            0.170260832,
            0.137921169,
            0.0982453227,
            0.0,
        ),
        (1.0, 25): (
            14.6146412,
            12.6743097,
            10.3377666,
            8.85573673,
            8.13690281,
            7.49001646,
            6.91076422,
            6.20640087,
            5.5372529,
            4.91498184,
            4.26497746,
            3.72837663,
            3.20027804,
            2.74243116,
            2.33230376,
            1.91321158,
            1.5846976,
            1.26639366,
            0.997234225,
            0.777997017,
            0.595163226,
            0.423126549,
            0.280289054,
            0.161718369,
            0.0770600736,
            0.0,
        ),
        (1.2, 30): (
            1.24153244,
            1.04120433,
            0.879422247,
            0.748070478,
            0.642300487,
            0.562026024,
            0.501183808,
            0.439007342,
            0.387140393,
            0.343706042,
            0.312571466,
            0.281303823,
            0.25053367,
            0.23352164,
            0.216248184,
            0.198949158,
            0.17933175,
            0.158715799,
            0.137921169,
            0.110006467,
            0.065540202,
            0.0,
        ),
    }
)


def filled(table: tuple[float | None, ...], steps: int, denoise: float) -> Sigmas:
    """Sigmas along a table, evenly in its index and in log-sigma, and 0: `steps + 1` of them.

    Of a `denoise` below 1 only the last share, rounded; () for none.

    Raises: ValueError: a point of the table that they need is not known.
    """
    if denoise <= 0.0:
        return ()
    sigmas: list[float] = []
    for index in range(steps - round(steps * denoise), steps):
        low, weight = divmod(index * (len(table) - 1), steps)
        log_sigma = math.log(_known(table, low))
        if weight:
            log_sigma += (math.log(_known(table, low + 1)) - log_sigma) * weight / steps
        sigmas.append(math.exp(log_sigma))
    return (*sigmas, 0.0)


def align_your_steps(model_type: str, steps: int, denoise: float) -> Sigmas:
    """A schedule for a kind of model. Raises: KeyError: there is no table for it."""
    return filled(ALIGN_YOUR_STEPS[model_type], steps, denoise)


def optimal_steps(model_type: str, steps: int, denoise: float) -> Sigmas:
    """A schedule for a kind of model. Raises: ValueError: its numbers are not known."""
    try:
        return filled(OPTIMAL_STEPS[model_type], steps, denoise)
    except ValueError as unknown:
        raise ValueError(f"{model_type} in {steps} steps: {unknown}") from unknown


def _known(table: tuple[float | None, ...], index: int) -> float:
    point = table[index]
    if point is None:
        raise ValueError(f"point {index + 1} of {len(table)} is not known")
    return point


def gits(coeff: float, steps: int, denoise: float) -> Sigmas:
    """A schedule of the recorded ones. Raises: ValueError: it is none of these."""
    if denoise <= 0.0:
        return ()
    known = GITS.get((round(coeff, 2), steps), ())
    wanted = round(steps * denoise) + 1
    if len(known) < wanted:
        shown = ", ".join(f"{number} with {count} steps" for number, count in GITS)
        raise ValueError(
            f"the schedule of coefficient {coeff} for {steps} steps is not known; known (in part) "
            f"are {shown}"
        )
    return known[-wanted:]
