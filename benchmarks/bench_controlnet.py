"""What a ControlNet costs on two executors: it should hide behind the denoiser, or the reverse.

Executors have one thread each. A triple is one request after another: plain on one executor (the
denoiser's time), steered on one (denoiser and ControlNet in turn), steered on two. The ideal of
the last is the longer of both models' times, max(plain, steered - plain); its share of what was
measured is the result. Wall time is from the POST to the end marker. It takes two idle cores: for
that, the CPU time per wall time of the steered request on two executors is printed, too.

    python benchmarks/bench_controlnet.py [--triples 6] [--steps 20] [--size 256]

The last line is JSON. Exit status 1: the share is below the limit of 0.8.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from bench_overhead import CHECKPOINT, Seconds, Server, prompt_of, spread
from nodeloom.runtime.models.tiny import SLOW, write_tiny_sd15
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet

LIMIT = 0.8
CONTROLNET = "control.safetensors"


def steered(prompt: dict[str, Any], size: int) -> dict[str, Any]:
    """The same prompt with a ControlNet on both sides."""
    image = {"width": size, "height": size, "batch_size": 1, "color": 0x804020}
    apply = {
        "positive": ["6", 0],
        "negative": ["7", 0],
        "control_net": ["11", 0],
        "image": ["10", 0],
        "strength": 1.0,
        "start_percent": 0.0,
        "end_percent": 1.0,
    }
    sampler = {**prompt["3"]["inputs"], "positive": ["12", 0], "negative": ["12", 1]}
    return {
        **prompt,
        "3": {**prompt["3"], "inputs": sampler},
        "10": {"class_type": "EmptyImage", "inputs": image},
        "11": {"class_type": "ControlNetLoader", "inputs": {"control_net_name": CONTROLNET}},
        "12": {"class_type": "ControlNetApplyAdvanced", "inputs": apply},
    }


async def measure(bases: list[Path], flags: argparse.Namespace) -> list[list[Seconds]]:
    """Per triple: plain and steered on one executor, steered on two; the first is a warm-up."""
    servers = [Server(base, executors=1 + index) for index, base in enumerate(bases)]
    client_id = uuid.uuid4().hex
    triples: list[list[Seconds]] = []
    try:
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(aiohttp.ClientSession())
            sockets = []
            for server in servers:
                await server.ready(session)
                address = f"{server.url}/ws?clientId={client_id}"
                sockets.append(await stack.enter_async_context(session.ws_connect(address)))
            for seed in range(flags.triples + 1):
                plain = prompt_of(seed, flags.steps, flags.size)
                with_control = steered(prompt_of(seed + 1000, flags.steps, flags.size), flags.size)
                triples.append(
                    [
                        await servers[index].run(session, sockets[index], client_id, prompt)
                        for index, prompt in ((0, plain), (0, with_control), (1, with_control))
                    ]
                )
    finally:
        for server in servers:
            server.stop()
    return triples[1:]


def report(triples: list[list[Seconds]], steps: int) -> dict[str, Any]:
    """Shares of the ideal, triple by triple."""
    walls = [[run["wall_s"] for run in triple] for triple in triples]
    shares = [max(plain, one - plain) / two for plain, one, two in walls]
    medians = [statistics.median(column) for column in zip(*walls, strict=True)]
    return {
        "triples": len(triples),
        "limit": LIMIT,
        "denoiser_step_ms": round(1000 * medians[0] / steps, 1),
        "controlnet_step_ms": round(1000 * (medians[1] - medians[0]) / steps, 1),
        "one_executor_step_ms": round(1000 * medians[1] / steps, 1),
        "two_executors_step_ms": round(1000 * medians[2] / steps, 1),
        "cores_used_on_two": spread([t[2]["cpu_s"] / t[2]["wall_s"] for t in triples]),
        "share_of_ideal": spread(shares),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--triples", type=int, default=6, help="measured triples")
    parser.add_argument("--steps", type=int, default=20, help="denoising steps per request")
    parser.add_argument("--size", type=int, default=256, help="side of the picture in pixels")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nodeloom-bench-") as folder:
        bases = [Path(folder) / name for name in ("one", "two")]
        for base in bases:
            models = base / "models"
            write_tiny_sd15(models / "checkpoints" / CHECKPOINT, seed=0, size=SLOW)
            write_tiny_controlnet(models / "controlnet" / CONTROLNET, seed=0, size=SLOW.unet)
        result = report(asyncio.run(measure(bases, flags)), flags.steps)
    for name, value in result.items():
        print(f"{name:22}", value)
    print(json.dumps(result))
    return 0 if result["share_of_ideal"]["median"] >= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
