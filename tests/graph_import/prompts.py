"""Prompts in API format, as clients send them."""

from __future__ import annotations

import copy
from typing import Any

from .known_files import CHECKPOINT, PICTURE

Prompt = dict[str, Any]


def node(class_type: str, **inputs: object) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def text_to_image(**sampling: object) -> Prompt:
    """The classic seven nodes; `sampling` overrides inputs of the KSampler "3"."""
    settings: dict[str, object] = {
        "model": ["4", 0],
        "seed": 7,
        "steps": 3,
        "cfg": 7.5,
        "sampler_name": "euler",
        "scheduler": "normal",
        "positive": ["6", 0],
        "negative": ["7", 0],
        "latent_image": ["5", 0],
        "denoise": 1.0,
    }
    return {
        "3": node("KSampler", **{**settings, **sampling}),
        "4": node("CheckpointLoaderSimple", ckpt_name=CHECKPOINT),
        "5": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "6": node("CLIPTextEncode", text="a cat", clip=["4", 1]),
        "7": node("CLIPTextEncode", text="blurry", clip=["4", 1]),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImage", images=["8", 0], filename_prefix="out"),
    }


def steps_off_a_picture() -> Prompt:
    """Two samplers in a row: the steps of each are read off a picture's width."""
    prompt = text_to_image(steps=["21", 0])
    prompt["20"] = node("LoadImage", image=PICTURE)
    prompt["21"] = node("GetImageSize", image=["20", 0])
    prompt["30"] = copy.deepcopy(prompt["3"])
    prompt["30"]["inputs"] |= {"latent_image": ["3", 0], "steps": ["32", 1], "seed": 8}
    prompt["31"] = node(
        "ImageScale", image=["20", 0], upscale_method="area", width=2, height=4, crop="disabled"
    )
    prompt["32"] = node("GetImageSize", image=["31", 0])
    prompt["8"]["inputs"]["samples"] = ["30", 0]
    return prompt
