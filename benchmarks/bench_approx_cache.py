"""What skipped steps save: requests that start at 20 % and 40 % of their steps, against whole ones.

One server, one executor of one thread, one request at a time. In a round each text is drawn four
times: whole, from 20 %, from 40 %, whole again; the order turns with each round. Whole over whole
again is the A/A control: a ratio inside its spread is no result. What the shorter ones start from
was kept by a request with a similar text before the first round; all have seeds of their own.

The model-bound part is what the executor reported of denoiser, text encoder and VAE; sampling is
the denoiser alone. Wall time and CPU time (of all processes: where others use the machine, it says
more) are from the POST to the end marker, lookup and growth included. A miss (another cfg each
time) stands beside them, and what the nodes of the cache take.

    python benchmarks/bench_approx_cache.py [--rounds 16] [--steps 20] [--size 64]

The last line is JSON. Exit status 1: a median ratio of the model-bound part is below its limit:
1.15 at 20 %, 1.4 at 40 % (LegoDiffusion, section 7.4: 1.17 and 1.42).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench_overhead import CHECKPOINT, RUN_LIMIT_S, START_LIMIT_S, Server, prompt_of, spread
from nodeloom.runtime.coordinator.journal import Line, read_journal
from nodeloom.runtime.models.tiny import SLOW, write_tiny_sd15
from nodeloom.runtime.scheduler.actions import SendBatch
from nodeloom.runtime.scheduler.events import BatchReported
from nodeloom.runtime.scheduler.scheduler import Scheduler, SchedulerConfig
from nodeloom.server.client import ServerClient

LIMITS: Final = {"20": 1.15, "40": 1.4}
WHOLE, AGAIN, MISS = "whole", "again", "miss"
ARMS: Final = (WHOLE, "20", "40", MISS, AGAIN)

PARTS: Final = ("models", "sampling", "cache")
CACHE_OPS: Final = frozenset({"latents_lookup", "latents_resume", "latents_store"})

Seconds = dict[str, float]  # PARTS, wall, cpu


def passes_of(arm: str) -> dict[str, Any]:
    """What a request opts in to: this share, for any text."""
    if arm in (WHOLE, AGAIN):
        return {}
    share = 0.2 if arm == MISS else int(arm) / 100
    return {"approximate_cache": {"levels": [{"similarity": 0.0, "skip": share}]}}


def request_of(number: int, arm: str, flags: argparse.Namespace) -> dict[str, Any]:
    """Text to image; a miss is guided as nobody was before."""
    prompt = prompt_of(number, flags.steps, flags.size)
    if arm == MISS:
        prompt["3"]["inputs"]["cfg"] = 8.0 + number / 1000
    return prompt


async def run(
    server: Server, client: ServerClient, prompt: dict[str, Any], arm: str
) -> tuple[str, Seconds]:
    """One request: its id, and what it took from the POST to the end marker."""
    start_s, start_cpu_s = time.perf_counter(), cpu_s(server)
    accepted = await client.submit(prompt, "benchmark", passes_of(arm))
    async with asyncio.timeout(RUN_LIMIT_S):
        async for heard in client.follow(accepted.prompt_id):
            if heard.type == "execution_error":
                raise RuntimeError(heard.data["exception_message"])
    wall_s = time.perf_counter() - start_s
    return accepted.prompt_id, {"wall": wall_s, "cpu": cpu_s(server) - start_cpu_s}


def cpu_s(server: Server) -> float:
    """CPU seconds of the server and its executor so far."""
    times = [process.cpu_times() for process in server.processes()]
    return sum(item.user + item.system for item in times)


def reported(journal: Path) -> tuple[dict[str, Seconds], dict[str, int]]:
    """Seconds on models by request, and how many evaluations ran for it."""
    sent: dict[tuple[str, int], SendBatch] = {}
    seconds: dict[str, Seconds] = defaultdict(lambda: dict.fromkeys(PARTS, 0.0))
    evaluations: dict[str, int] = defaultdict(int)
    scheduler = Scheduler(SchedulerConfig(is_strict=False))
    for line in read_journal(journal):
        if not isinstance(line, Line):
            continue
        if isinstance(line.event, BatchReported):
            send = sent[line.event.executor, line.event.batch_id]
            (request_id,) = {call.request_id for call in send.batch.calls}  # one at a time
            if send.batch.model is not None:
                seconds[request_id]["models"] += line.event.run_s
            if send.batch.op in CACHE_OPS:
                seconds[request_id]["cache"] += line.event.run_s
            if send.batch.op == "denoise":
                seconds[request_id]["sampling"] += line.event.run_s
                evaluations[request_id] += 1
        for action in scheduler.on_event(line.event, line.now_s):  # decides as it did then
            if isinstance(action, SendBatch):
                sent[action.executor, action.batch.batch_id] = action
    return seconds, evaluations


async def measure(base: Path, flags: argparse.Namespace) -> list[dict[str, Seconds]]:
    """Per round, the seconds of each arm. The first round warms up and fills the cache."""
    server = Server(base)
    requests: list[dict[str, tuple[str, Seconds]]] = []
    try:
        async with ServerClient(server.url) as client:
            async with asyncio.timeout(START_LIMIT_S):
                while not await client.num_executors():
                    await asyncio.sleep(0.1)
            for number in range(flags.rounds + 1):
                turned = [*ARMS[number % len(ARMS) :], *ARMS[: number % len(ARMS)]]
                done = {}
                for arm in turned:
                    text = 10 * number + ARMS.index(arm)
                    done[arm] = await run(server, client, request_of(text, arm, flags), arm)
                requests.append(done)
    finally:
        server.stop()
    (journal,) = (base / "user" / "nodeloom" / "journal").glob("*.jsonl")
    seconds, evaluations = reported(journal)
    for done in requests[1:]:
        counts = {arm: evaluations[request_id] for arm, (request_id, _) in done.items()}
        skipped = {arm: round(int(arm) / 100 * flags.steps) for arm in LIMITS}
        expected = {arm: flags.steps - skipped.get(arm, 0) for arm in ARMS}
        if counts != expected:
            raise RuntimeError(f"evaluations {counts} instead of {expected}")
    return [
        {arm: {**taken, **seconds[request_id]} for arm, (request_id, taken) in done.items()}
        for done in requests[1:]
    ]


def ratios(rounds: Sequence[Mapping[str, Seconds]], arm: str, what: str) -> list[float]:
    """Whole (the mean of both) over `arm`; for the control, whole over whole again."""
    if arm == AGAIN:
        return [done[WHOLE][what] / done[AGAIN][what] for done in rounds]
    return [(done[WHOLE][what] + done[AGAIN][what]) / 2 / done[arm][what] for done in rounds]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", type=int, default=64)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nodeloom-bench-") as folder:
        base = Path(folder)
        checkpoints = base / "models" / "checkpoints"
        checkpoints.mkdir(parents=True)
        write_tiny_sd15(checkpoints / CHECKPOINT, seed=0, size=SLOW)
        rounds = asyncio.run(measure(base, flags))
    report: dict[str, Any] = {"rounds": flags.rounds, "steps": flags.steps, "size": flags.size}
    for what in ("models", "sampling", "wall", "cpu"):
        for arm in (AGAIN, "20", "40", MISS):
            found = ratios(rounds, arm, what)
            told = report[f"{what}_{arm}"] = spread(found)
            print(f"{what:8} whole / {arm:5} {told['median']} ({told['min']} to {told['max']})")
    for arm in ("20", "40", MISS):
        cache_s = statistics.median(done[arm]["cache"] for done in rounds)
        report[f"cache_ms_{arm}"] = round(1000 * cache_s, 2)
        print(f"lookup, resume and store of {arm:5} {1000 * cache_s:.2f} ms")
    report["whole_s"] = round(statistics.median(done[WHOLE]["models"] for done in rounds), 3)
    is_met = all(report[f"models_{arm}"]["median"] >= limit for arm, limit in LIMITS.items())
    print(json.dumps(report | {"limits": LIMITS, "is_met": is_met}))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
