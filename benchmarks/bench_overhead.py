"""What micro-serving costs one request: our server against a plain loop over the same modules.

One request at a time, one executor of one thread, against `monolith.py` with one thread, on a
random checkpoint whose denoising step costs some 50 ms or more. Runs are paired and their order
alternates: reference, server, reference again, so that the second reference against the first is
the A/A control: a ratio inside the control's spread is no result. CPU time counts the server's
process and its executor's; wall time is from the POST to the end marker on the websocket.

    python benchmarks/bench_overhead.py [--pairs 8] [--steps 20]

The last line is JSON. Exit status 1: the median wall ratio exceeds the limit of 1.10.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from nodeloom.runtime.models.tiny import SLOW, write_tiny_sd15

LIMIT = 1.10
CHECKPOINT = "bench.safetensors"
START_LIMIT_S = 120.0
RUN_LIMIT_S = 300.0

Seconds = dict[str, float]


def prompt_of(seed: int, steps: int, size: int) -> dict[str, Any]:
    """Text to image, as ComfyUI's default workflow."""
    return {
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": CHECKPOINT}},
        "5": {
            "class_type": "EmptyLatentImage",
            "inputs": {"width": size, "height": size, "batch_size": 1},
        },
        "6": {"class_type": "CLIPTextEncode", "inputs": {"text": f"cat {seed}", "clip": ["4", 1]}},
        "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "blurry", "clip": ["4", 1]}},
        "3": {
            "class_type": "KSampler",
            "inputs": {
                "seed": seed,
                "steps": steps,
                "cfg": 7.0,
                "sampler_name": "euler",
                "scheduler": "normal",
                "denoise": 1.0,
                "model": ["4", 0],
                "positive": ["6", 0],
                "negative": ["7", 0],
                "latent_image": ["5", 0],
            },
        },
        "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
        "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "b", "images": ["8", 0]}},
    }


class Reference:
    """The monolithic process."""

    def __init__(self, base: Path) -> None:
        script = Path(__file__).with_name("monolith.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), "--base-directory", str(base), "--threads", "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, prompt: dict[str, Any]) -> Seconds:
        """One request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(prompt), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference ended with exit code {self._process.wait()}")
        seconds: Seconds = json.loads(line)
        return seconds

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(timeout=30)


class Server:
    """`nodeloom serve` with executors of one thread, seen through one websocket."""

    def __init__(self, base: Path, *, executors: int = 1) -> None:
        command = [sys.executable, "-m", "nodeloom.server.cli", "serve", "--port", "0"]
        command += ["--base-directory", str(base), "--threads", "1"]
        command += ["--executors", str(executors)]
        command += ["--device", "cpu", "--log-level", "ERROR"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().rsplit(maxsplit=1)[-1]

    async def ready(self, session: aiohttp.ClientSession) -> None:
        """Wait for the executor."""
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            async with session.get(f"{self.url}/nodeloom/executors") as answer:
                if await answer.json():
                    return
            await asyncio.sleep(0.1)
        raise TimeoutError("the executor did not start")

    async def run(
        self,
        session: aiohttp.ClientSession,
        socket: aiohttp.ClientWebSocketResponse,
        client_id: str,
        prompt: dict[str, Any],
    ) -> Seconds:
        """One request, from the POST to its end marker."""
        cpu_s, wall_s = self._cpu_s(), time.perf_counter()
        body = {"prompt": prompt, "client_id": client_id}
        async with session.post(f"{self.url}/prompt", json=body) as answer:
            answer.raise_for_status()
            prompt_id = (await answer.json())["prompt_id"]
        async with asyncio.timeout(RUN_LIMIT_S):
            while True:
                message = await socket.receive_json()
                if message["type"] == "execution_error":
                    raise RuntimeError(message["data"]["exception_message"])
                if message["type"] == "executing" and message["data"] == {
                    "node": None,
                    "prompt_id": prompt_id,
                }:
                    break
        return {"wall_s": time.perf_counter() - wall_s, "cpu_s": self._cpu_s() - cpu_s}

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(timeout=30)

    def processes(self) -> list[psutil.Process]:
        """The server's and its executors'."""
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def _cpu_s(self) -> float:
        times = [process.cpu_times() for process in self.processes()]
        return sum(item.user + item.system for item in times)


async def measure(base: Path, flags: argparse.Namespace) -> list[tuple[Seconds, Seconds, Seconds]]:
    """Triples of (reference, server, reference again), after one run of each to warm up."""
    reference, server = Reference(base), Server(base)
    client_id = uuid.uuid4().hex
    triples = []
    try:
        async with aiohttp.ClientSession() as session:
            await server.ready(session)
            address = f"{server.url}/ws?clientId={client_id}"
            async with session.ws_connect(address) as socket:
                for pair in range(flags.pairs + 1):
                    prompt = prompt_of(pair, flags.steps, flags.size)
                    before = await asyncio.to_thread(reference.run, prompt)
                    served = await server.run(session, socket, client_id, prompt)
                    after = await asyncio.to_thread(reference.run, prompt)
                    first, again = (before, after) if pair % 2 else (after, before)
                    triples.append((first, served, again))
    finally:
        reference.stop()
        server.stop()
    return triples[1:]


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Minimum, median and maximum."""
    return {
        "min": round(min(ratios), 4),
        "median": round(statistics.median(ratios), 4),
        "max": round(max(ratios), 4),
    }


def report(triples: list[tuple[Seconds, Seconds, Seconds]], steps: int) -> dict[str, Any]:
    """The ratios, pair by pair, against the mean of the two references around each server run."""
    result: dict[str, Any] = {"pairs": len(triples), "steps": steps, "limit": LIMIT}
    for kind in ("wall_s", "cpu_s"):
        served = [b[kind] / ((a[kind] + c[kind]) / 2) for a, b, c in triples]
        control = [c[kind] / a[kind] for a, _, c in triples]
        name = kind.removesuffix("_s")
        result[f"{name}_ratio"] = spread(served)
        result[f"{name}_control"] = spread(control)
    reference_s = statistics.median(a["wall_s"] for a, _, _ in triples)
    result["reference_wall_s"] = round(reference_s, 3)
    result["reference_step_ms"] = round(1000 * reference_s / steps, 1)
    return result


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=8, help="measured triples")
    parser.add_argument("--steps", type=int, default=20, help="denoising steps per request")
    parser.add_argument("--size", type=int, default=128, help="side of the picture in pixels")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nodeloom-bench-") as folder:
        base = Path(folder)
        write_tiny_sd15(base / "models" / "checkpoints" / CHECKPOINT, seed=0, size=SLOW)
        result = report(asyncio.run(measure(base, flags)), flags.steps)
    for name in ("wall", "cpu"):
        for kind in ("ratio", "control"):
            numbers = result[f"{name}_{kind}"]
            print(f"{name:4} {kind:8}", *(f"{k} {v:.3f}" for k, v in numbers.items()))
    print(f"a step of the reference costs {result['reference_step_ms']} ms, all else included")
    print(json.dumps(result))
    return 0 if result["wall_ratio"]["median"] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
