"""What a sampler's update costs the host: ours against a plain loop of the same arithmetic.

One latent [1, 4, 128, 128] in float32, one thread; the model and the noise are given tensors, so
that what remains is the sampler. Ours plans, and takes each evaluation as a node of the graph does:
a state in, a new one out. Of every sampler both first sample with a denoiser that depends on x and
must agree. Then both run by turns, twice a pair, over schedules that no run had before: weights
that are kept from run to run don't count. The median of the pairs' ratios is taken; that of the
loop's two runs to each other is the A/A control. A ratio above the limit is measured again, three
times as long.

    python benchmarks/bench_samplers.py [--pairs 100] [--steps 20] [--only NAME ...]

The last line is JSON. Exit status 1: a ratio exceeds the limit of 1.2.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count

import torch
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.base import Course, Estimate, Noise
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES, sampler
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas
from plain_loops import ONE_STEP, Loop, Model, Sigmas, Tensor
from plain_multistep import LOOKING_BACK
from plain_solvers import dpm_adaptive, dpm_fast, sa, unipc

LIMIT = 1.2
SHAPE = (1, 4, 128, 128)
AGREE = 1e-3  # of x, whose values are up to 4
SAMPLING = family("sd15").model_sampling
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
KEPT_BYTES = 2**30
NUMBERS = count(1)  # no two runs have the same schedule
NOISY = (SAMPLING.percent_to_sigma(0.2), SAMPLING.percent_to_sigma(0.8))  # SA-Solver's
SOLVERS: dict[str, Loop] = {
    "dpm_fast": dpm_fast,
    "dpm_adaptive": dpm_adaptive,
    "sa_solver": partial(sa, ends=NOISY, is_twice=False),
    "sa_solver_pece": partial(sa, ends=NOISY, is_twice=True),
    "uni_pc": partial(unipc, is_bh1=True),
    "uni_pc_bh2": partial(unipc, is_bh1=False),
}
LOOPS = ONE_STEP | LOOKING_BACK | SOLVERS


def ours(name: str, model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    """A run by plan and update, or of one that chooses its own steps."""
    chosen, course = sampler(name), Course(sigmas, SAMPLING)
    state = chosen.begin(x, course)
    if chosen.is_adaptive:
        requests = chosen.run(x, course, noise)
        asked = next(requests)
        while True:
            try:
                asked = requests.send(Estimate(*model(asked.x, asked.sigma)))
            except StopIteration as end:
                result: Tensor = end.value
                return result
    for evaluation in chosen.plan(course):
        x = state.x if state.x_eval is None else state.x_eval
        estimate = Estimate(*model(x, evaluation.sigma))
        state = chosen.update(state, estimate, evaluation, course, noise)
    last: Tensor = chosen.finish(state, course).x
    return last


def moving(x: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """A denoiser that two samplers must ask the same to agree."""
    share = 1.0 / (1.0 + sigma * sigma)
    denoised = x * share + torch.tanh(x) * ((1.0 - share) * 0.5)
    return denoised, denoised * 0.8 + 0.1


def keep_memory() -> None:
    """Let glibc keep what is freed: else one of the two pays, by chance, for getting it again."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def seconds(run: Callable[[], Tensor]) -> float:
    """CPU seconds of a run on this thread."""
    started = time.thread_time()
    run()
    return time.thread_time() - started


def measured(name: str, pairs: int, steps: int) -> tuple[float, float, float]:
    """The median ratio of ours to the loop, that of the loop to itself, and the loop's seconds."""
    generator = torch.Generator().manual_seed(1)
    draws = torch.randn((3, *SHAPE), generator=generator)

    def still(x: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        return draws[0], draws[1]

    def noise(like: Tensor, sigma: float, following: float) -> Tensor:
        return draws[2]

    usual = ksampler_sigmas(SAMPLING, "karras", steps, 1.0, name)
    start = draws[1] * usual[0]
    mine = ours(name, moving, start, usual, noise)
    plain = LOOPS[name](moving, start, usual, noise)
    difference = float((mine - plain).abs().max())
    if difference > AGREE:
        raise ValueError(f"{name}: ours and the loop differ by {difference:.2g}")
    plain_run = partial(LOOPS[name], still, start, noise=noise)
    own_run = partial(ours, name, still, start, noise=noise)
    ratios, controls, costs = [], [], []
    for _ in range(pairs):
        spent = []
        for run in (plain_run, own_run) * 2:
            fresh = tuple(sigma * (1.0 - 1e-7 * next(NUMBERS)) for sigma in usual)
            spent.append(seconds(partial(run, sigmas=fresh)))
        ratios.append((spent[1] + spent[3]) / (spent[0] + spent[2]))
        controls.append(spent[0] / spent[2])
        costs.append(spent[0])
    return statistics.median(ratios), statistics.median(controls), statistics.median(costs)


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=SAMPLER_NAMES, default=SAMPLER_NAMES)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    found = {}
    print(f"{'sampler':32}{'ratio':>8}{'control':>9}{'loop, us a step':>17}")
    for name in args.only:
        ratio, control, cost = measured(name, args.pairs, args.steps)
        if ratio > LIMIT:  # other processes may have been in the way
            ratio, control, cost = measured(name, 3 * args.pairs, args.steps)
        found[name] = round(ratio, 3)
        print(f"{name:32}{ratio:8.3f}{control:9.3f}{cost / args.steps * 1e6:17.0f}")
    above = sorted(name for name, ratio in found.items() if ratio > LIMIT)
    print(json.dumps({"ratios": found, "limit": LIMIT, "above": above}))
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
