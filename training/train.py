"""Train a part of the demo model, or write its files: `python -m training.train STAGE`.

Run it from the root of the checkout. A run that was interrupted goes on from its last checkpoint.
Several processes may share the denoiser's steps:
`torchrun --nproc-per-node 2 -m training.train unet`.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import Final

import torch
from torch import distributed

from . import stages
from .run_files import RUNS

STAGES: Final = {
    "vae": stages.train_vae,
    "decoder": stages.train_decoder,
    "unet": stages.train_unet,
    "controlnet": stages.train_controlnet,
    "loras": stages.train_loras,
    "embedding": stages.train_embedding,
    "export": stages.export,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of checkpoints and pools")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)  # where cores are shared a second thread waits at every operation
    if "WORLD_SIZE" in os.environ:
        distributed.init_process_group("gloo")
    STAGES[arguments.stage](stages.Runs(arguments.runs))


if __name__ == "__main__":
    main()
