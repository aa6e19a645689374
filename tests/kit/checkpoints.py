"""Checkpoints for tests: small real ones, and the one of the end-to-end goldens."""

from __future__ import annotations

from pathlib import Path

from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.models.headers import inspect_checkpoint
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.tiny import (
    Sd15Size,
    TextSize,
    UnetSize,
    VaeSize,
    write_tiny_sd15,
)
from nodeloom.runtime.models.tiny_sd3 import MmditSize, Sd3Size, write_tiny_sd3
from nodeloom.runtime.models.weight_spec import Spec, materialise
from safetensors.numpy import save_file

# The widths that ComfyUI insists on: 487 MB, half a minute to make.
PEER = Sd15Size(
    unet=UnetSize(width=320, multiples=(1, 1), num_resnets=1, depths=(1, 0), context=768),
    vae=VaeSize(width=128, multiples=(1, 2, 4, 4), num_resnets=2),
    text=TextSize(width=768, num_layers=12, inner=3072),
)
# Of SD3's text encoders it has CLIP-L alone: 419 MB.
PEER_SD3 = Sd3Size(
    mmdit=MmditSize(num_blocks=2, context=4096, pooled=2048, positions=64),
    vae=PEER.vae,
    text=PEER.text,
)


SD15_ROLES = (Role.DENOISER, Role.TEXT_ENCODER, Role.VAE)  # what a checkpoint holds


def model_ref(path: Path, role: Role) -> ModelRef:
    """The handle that a loader node makes of a checkpoint."""
    info = inspect_checkpoint(path)
    return ModelRef(key=ModelKey(role=role, family=info.family, file=info.file, dtype=info.dtype))


def load_model(path: Path, role: Role) -> Model:
    """The model of a checkpoint, loaded on the CPU."""
    model = build(model_ref(path, role))
    model.load("cpu")
    return model


def peer_checkpoint(folder: Path) -> Path:
    """The checkpoint of the end-to-end goldens, made once in a folder that outlives the run."""
    path = folder / "sd15-peer.safetensors"
    if not path.exists():
        write_tiny_sd15(path, seed=0, size=PEER)
    return path


def peer_sd3_checkpoint(folder: Path) -> Path:
    """The SD3 checkpoint of the end-to-end goldens, made once."""
    path = folder / "sd3-peer.safetensors"
    if not path.exists():
        write_tiny_sd3(path, seed=0, size=PEER_SD3)
    return path


def write_peer_embedding(folder: Path) -> Path:
    """The textual inversion of the end-to-end goldens."""
    spec = Spec()
    spec.noise("emb_params", 2, PEER.text.width, std=0.3)
    path = folder / "ti-peer.safetensors"
    save_file(materialise(spec, 0), path)
    return path
