"""Train a part of the demo model: `python -m training.train STAGE`, from the root of the checkout."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from .loop import Plan, train
from .run_files import RUNS
from .vae import VaeStage

VAE_PLAN = Plan(num_steps=1800, rate=1e-3, warmup=50, ema=0.995)


def train_vae(runs: Path) -> None:
    stage = VaeStage(seed=1, batch=16, crop=64, whole_from=1500)
    train(stage, VAE_PLAN, runs / "vae.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=["vae"])
    parser.add_argument("--runs", type=Path, default=RUNS)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)  # a second thread waits at every operation where cores are shared
    {"vae": train_vae}[arguments.stage](arguments.runs)


if __name__ == "__main__":
    main()
