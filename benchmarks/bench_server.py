"""Throughput of three workflows that share a base, for eight clients, against monolithic processes.

Each client sends its next prompt when its last one is done; it has one of three workflows on one
base checkpoint: with LoRA A, with LoRA B, with a ControlNet (`sharing.py`). Our server has two
executors of one thread. References run the same prompts with the same modules, one after another
as ComfyUI does, patching the base in place when the next prompt wants another LoRA: (i) one process
of two threads, (ii) two processes of one thread behind one shared queue. Nothing is remembered
between prompts anywhere. All three stay loaded, and in a round they take turns: (ii), ours, (i),
(ii) again.

A turn lasts from the first prompt until the last picture is written: its end, when fewer clients
are left, counts. (i) gets one prompt of each of four clients, who have the same share of each
workflow: it runs one at a time whoever waits, and has no such end. The ratio is our pictures per
second over those of the better reference, round by round, (ii) being the mean of its two turns.
(ii) again over (ii) is the A/A control: a ratio inside its spread is no result. The same ratios by
CPU time (pictures per CPU second) stand beside them: where others use the machine, too, they say
more.

    python benchmarks/bench_server.py [--rounds 2] [--quick]

The last line is JSON. Exit status 1: a median ratio is below its limit: 1.2 for pictures of 128 by
128 pixels (256 latent positions), 1.0 for 256 by 256 (1,024).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench_overhead import spread
from sharing import WORKFLOWS, prompt_for, write_models
from systems import Changes, Loops, Served, System

NUM_CLIENTS: Final = 8
CLIENTS_OF_ONE: Final = 4
OURS, ONE, TWO = "ours", "one_process", "two_processes"
TURNS: Final = (TWO, OURS, ONE, TWO)
WARM_UP_STEPS: Final = 3
WARM_UP_PROMPTS: Final = 2  # per client: enough for every process to see each workflow
WARM_UP_SEED: Final = 1_000_000
LOOK_S: Final = 1.0  # between looks at the memory


@dataclass(slots=True, frozen=True)
class Load:
    """Side of the pictures in pixels, prompts per client and turn, steps; limit of the ratio."""

    size: int
    prompts: int
    steps: int
    limit: float

    @property
    def num_positions(self) -> int:
        """Of the latents."""
        return (self.size // 8) ** 2


LOADS: Final = (
    Load(size=128, prompts=5, steps=12, limit=1.2),
    Load(size=256, prompts=2, steps=10, limit=1.0),
)


@dataclass(slots=True)
class Turns:
    """What one system showed at one size, turn by turn, and what happened to its models."""

    rates: list[float] = field(default_factory=list)  # pictures per second
    cpu_s: list[float] = field(default_factory=list)  # per picture
    changes: Changes = field(default_factory=Changes)
    num_pictures: int = 0

    def add(self, num_pictures: int, wall_s: float, cpu_s: float, changes: Changes) -> None:
        """Another turn."""
        self.rates.append(num_pictures / wall_s)
        self.cpu_s.append(cpu_s / num_pictures)
        self.changes += changes
        self.num_pictures += num_pictures

    def summary(self) -> dict[str, Any]:
        """For the report."""
        return {
            "pictures_per_s": round(statistics.median(self.rates), 4),
            "cpu_s_per_picture": round(statistics.median(self.cpu_s), 3),
            "num_pictures": self.num_pictures,
            "num_loads": self.changes.num_loads,
            "num_switches": self.changes.num_switches,
            "switch_s": round(self.changes.switch_s, 3),
        }


@dataclass(slots=True)
class Memory:
    """Peak bytes of a system's processes together; PSS counts shared pages once."""

    pss: int = 0
    rss: int = 0

    async def watch(self, system: System) -> None:
        """Look again and again until cancelled."""
        while True:
            infos = await asyncio.to_thread(
                lambda: [process.memory_full_info() for process in system.processes()]
            )
            self.pss = max(self.pss, sum(info.pss for info in infos))
            self.rss = max(self.rss, sum(info.rss for info in infos))
            await asyncio.sleep(LOOK_S)


async def drain(
    name: str, system: System, load: Load, *, steps: int, prompts: int, first: int
) -> int:
    """All clients send so many prompts, with seeds from `first`, and wait for the pictures.

    Returns how many pictures that made.
    """
    num_clients = CLIENTS_OF_ONE if name == ONE else NUM_CLIENTS

    async def client(index: int) -> None:
        workflow = WORKFLOWS[index % len(WORKFLOWS)]
        for number in range(first + index, first + prompts * NUM_CLIENTS, NUM_CLIENTS):
            await system.run(index, prompt_for(workflow, number, steps, load.size))

    async with asyncio.TaskGroup() as tasks:
        for index in range(num_clients):
            tasks.create_task(client(index))
    return num_clients * prompts


async def turn(name: str, system: System, load: Load, first: int, turns: Turns) -> None:
    """One measured turn of a system."""
    prompts = 1 if name == ONE else load.prompts
    start_s, cpu_s = time.monotonic(), _cpu_s(system)
    num_pictures = await drain(name, system, load, steps=load.steps, prompts=prompts, first=first)
    wall_s = time.monotonic() - start_s
    turns.add(num_pictures, wall_s, _cpu_s(system) - cpu_s, system.changes(start_s))


def _cpu_s(system: System) -> float:
    times = [process.cpu_times() for process in system.processes()]
    return sum(item.user + item.system for item in times)


async def measure(
    folder: Path, loads: Sequence[Load], num_rounds: int
) -> tuple[dict[Load, dict[str, Turns]], dict[str, Memory]]:
    """Everything, by load and system; and each system's memory."""
    async with AsyncExitStack() as stack:
        systems: dict[str, System] = {}
        for name, system in (
            (OURS, Served(folder / OURS, NUM_CLIENTS)),
            (ONE, Loops(folder / ONE, num_processes=1, num_threads=2)),
            (TWO, Loops(folder / TWO, num_processes=2, num_threads=1)),
        ):
            systems[name] = await stack.enter_async_context(system)
        first = WARM_UP_SEED
        for name, system in systems.items():
            for load in loads:
                first += WARM_UP_PROMPTS * NUM_CLIENTS
                await drain(
                    name, system, load, steps=WARM_UP_STEPS, prompts=WARM_UP_PROMPTS, first=first
                )
            print(f"{name} is warm", flush=True)
        memory = {name: Memory() for name in systems}
        results = {load: {name: Turns() for name in systems} for load in loads}
        for number in range(num_rounds):
            for index, load in enumerate(loads):
                first = 1000 * (number * len(loads) + index)
                for name in TURNS:
                    watch = asyncio.create_task(memory[name].watch(systems[name]))
                    await turn(name, systems[name], load, first, results[load][name])
                    watch.cancel()
                    rate = results[load][name].rates[-1]
                    print(f"{load.size} {name:14} {rate:.3f} pictures/s", flush=True)
        return results, memory


def report(load: Load, results: dict[str, Turns]) -> dict[str, Any]:
    """The ratios at one size, round by round."""
    rates = {name: turns.rates for name, turns in results.items()}
    better = max((ONE, TWO), key=lambda name: statistics.median(rates[name]))
    frugal = {name: [1 / seconds for seconds in turns.cpu_s] for name, turns in results.items()}
    return {
        "size": load.size,
        "limit": load.limit,
        "better_reference": better,
        "ratio": spread(_ratios(rates, better)),
        "control": spread(_control(rates)),
        "cpu_ratio": spread(_ratios(frugal, better)),
        "cpu_control": spread(_control(frugal)),
        "systems": {name: turns.summary() for name, turns in results.items()},
    }


def _ratios(rates: dict[str, list[float]], better: str) -> list[float]:
    """Ours over the reference, round by round."""
    turns_per_round = TURNS.count(better)
    ratios = []
    for number, ours in enumerate(rates[OURS]):
        first = number * turns_per_round
        ratios.append(ours / statistics.mean(rates[better][first : first + turns_per_round]))
    return ratios


def _control(rates: dict[str, list[float]]) -> list[float]:
    return [again / first for first, again in zip(rates[TWO][::2], rates[TWO][1::2], strict=True)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2, help="measured rounds")
    parser.add_argument("--quick", action="store_true", help="one round, the small pictures only")
    flags = parser.parse_args()
    loads, num_rounds = (LOADS[:1], 1) if flags.quick else (LOADS, flags.rounds)
    with tempfile.TemporaryDirectory(prefix="nodeloom-bench-") as folder:
        for name in (OURS, ONE, TWO):
            write_models(Path(folder) / name)
        results, memory = asyncio.run(measure(Path(folder), loads, num_rounds))
    reports = {load.num_positions: report(load, results[load]) for load in loads}
    for num_positions, numbers in reports.items():
        print(f"{num_positions} latent positions")
        for kind in ("ratio", "control", "cpu_ratio", "cpu_control"):
            print(f"  {kind:14}", *(f"{k} {v:.3f}" for k, v in numbers[kind].items()))
        for name, summary in numbers["systems"].items():
            print(f"  {name:14}", *(f"{key} {value}" for key, value in summary.items()))
    megabytes = {
        name: {"pss_mb": seen.pss // 10**6, "rss_mb": seen.rss // 10**6}
        for name, seen in memory.items()
    }
    print("peak memory", megabytes)
    print(json.dumps({"rounds": num_rounds, "positions": reports, "memory": megabytes}))
    missed = [load for load in loads if not _is_reached(load, reports[load.num_positions])]
    return 1 if missed else 0


def _is_reached(load: Load, numbers: dict[str, Any]) -> bool:
    return bool(numbers["ratio"]["median"] >= load.limit)


if __name__ == "__main__":
    sys.exit(main())
