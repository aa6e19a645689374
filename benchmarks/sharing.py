"""Three workflows that share one base: one with LoRA A, one with LoRA B, one with a ControlNet.

The base is SD1.5's architecture with all four levels at a fifth of its width (64 instead of 320)
and with random weights. Its step with guidance takes some 110 ms of one core at 128 by 128 pixels,
the text encoder and the VAE little beside that. The four levels matter: at 16 by 16 latents a large
part of a step goes into handling weights, whatever the batch. In this model that is a third of a
step, in SD1.5 itself half of it, so what a batch saves is understated here rather than overstated.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

from bench_controlnet import CONTROLNET, steered
from bench_overhead import CHECKPOINT, prompt_of
from nodeloom.runtime.models.ldm_unet import unet_name
from nodeloom.runtime.models.tiny import (
    TINY,
    Sd15Size,
    UnetSize,
    text_spec,
    unet_spec,
    write_spec,
    write_tiny_sd15,
)
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet
from nodeloom.runtime.models.weight_spec import Spec

SIZE: Final = Sd15Size(
    unet=UnetSize(width=64, multiples=(1, 2, 4, 4), num_resnets=2, depths=(1, 1, 1, 0), context=64),
    vae=TINY.vae,
    text=TINY.text,
)
LORAS: Final = {"lora_a": "a.safetensors", "lora_b": "b.safetensors"}
WORKFLOWS: Final = (*LORAS, "controlnet")
LORA_RANK: Final = 8
LORA_GAIN: Final = 0.3  # of the weights that it changes


def write_models(base: Path) -> None:
    """The base checkpoint, both LoRAs and the ControlNet, below `base`/models."""
    models = base / "models"
    write_tiny_sd15(models / "checkpoints" / CHECKPOINT, seed=0, size=SIZE)
    write_tiny_controlnet(models / "controlnet" / CONTROLNET, seed=0, size=SIZE.unet)
    for seed, name in enumerate(LORAS.values()):
        write_spec(models / "loras" / name, lora_spec(SIZE), seed)


def lora_spec(size: Sd15Size) -> Spec:
    """A LoRA in kohya's format on all attention of the denoiser and the text encoder."""
    spec = Spec()
    for original, (shape, _, _) in unet_spec(size.unet).items():
        name = unet_name(original, size.unet.num_resnets)
        if ".attentions." in name and len(shape) > 1:
            _add(spec, "lora_unet_", name, shape)
    for name, (shape, _, _) in text_spec(size.text).items():
        if ".layers." in name and len(shape) > 1:
            _add(spec, "lora_te_", name, shape)
    return spec


def _add(spec: Spec, prefix: str, name: str, shape: tuple[int, ...]) -> None:
    module = prefix + name.removesuffix(".weight").replace(".", "_")
    outer, inner, kernel = shape[0], shape[1], shape[2:]
    spec[f"{module}.alpha"] = ((), float(LORA_RANK), 0.0)
    spec[f"{module}.lora_up.weight"] = ((outer, LORA_RANK, *kernel), 0.0, LORA_GAIN)
    spread = math.sqrt(3.0 / (inner * LORA_RANK))
    spec[f"{module}.lora_down.weight"] = ((LORA_RANK, inner, *kernel), 0.0, spread)


def prompt_for(workflow: str, number: int, steps: int, size: int) -> dict[str, Any]:
    """A prompt whose seed and texts no other number has."""
    prompt = prompt_of(number, steps, size)
    prompt["7"]["inputs"]["text"] = f"blurry {number}"
    return with_lora(prompt, LORAS[workflow]) if workflow in LORAS else steered(prompt, size)


def with_lora(prompt: dict[str, Any], file: str) -> dict[str, Any]:
    """The same prompt with a LoRA on the denoiser and the text encoder."""
    lora = {
        "lora_name": file,
        "strength_model": 1.0,
        "strength_clip": 1.0,
        "model": ["4", 0],
        "clip": ["4", 1],
    }
    changed = {
        "3": {"model": ["10", 0]},
        "6": {"clip": ["10", 1]},
        "7": {"clip": ["10", 1]},
    }
    return {
        **prompt,
        **{
            node_id: {**prompt[node_id], "inputs": {**prompt[node_id]["inputs"], **inputs}}
            for node_id, inputs in changed.items()
        },
        "10": {"class_type": "LoraLoader", "inputs": lora},
    }
