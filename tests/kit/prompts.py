"""ComfyUI prompts in API format for tests."""

from __future__ import annotations

from typing import Any

TINY = "tiny-random-sd15.safetensors"


def txt2img(
    *,
    seed: int = 1,
    steps: int = 4,
    size: int = 64,
    text: str = "a red cube",
    sampler: str = "euler",
    prefix: str = "test",
    checkpoint: str = TINY,
    **sampling: object,
) -> dict[str, Any]:
    """Seven nodes: checkpoint 4, latent 5, texts 6 and 7, sampler 3, decode 8, save 9."""
    return {
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": checkpoint}},
        "5": {
            "class_type": "EmptyLatentImage",
            "inputs": {"width": size, "height": size, "batch_size": 1},
        },
        "6": {"class_type": "CLIPTextEncode", "inputs": {"text": text, "clip": ["4", 1]}},
        "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "blurry", "clip": ["4", 1]}},
        "3": {
            "class_type": "KSampler",
            "inputs": {
                "seed": seed,
                "steps": steps,
                "cfg": 5.0,
                "sampler_name": sampler,
                "scheduler": "normal",
                "denoise": 1.0,
                "model": ["4", 0],
                "positive": ["6", 0],
                "negative": ["7", 0],
                "latent_image": ["5", 0],
            }
            | sampling,
        },
        "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
        "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": prefix, "images": ["8", 0]}},
    }
