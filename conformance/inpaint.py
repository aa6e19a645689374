"""inpaint.json: noise masks, runs under them, and the inputs of inpainting models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from kit.op_calls import run_op
from kit.toy_denoiser import steer
from kit.toy_vae import ToyVae
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.base import SamplerState
from nodeloom.runtime.ops.inpaint_channels import inpaint_channels
from nodeloom.runtime.sampling.noise import sampler_generator
from nodeloom.runtime.sampling.noise_mask import latent_mask
from nodeloom.runtime.values import CondEntry, Conditioning, KeptPicture, Latent, SamplingRun
from safetensors.torch import load_file

from .case import Case, Outcome, close, worst
from .sampler_nodes import SCALE, Graph
from .samplers import SCALES

MASK_TOLERANCE: Final = 1e-6
RUN_TOLERANCE: Final = 2e-4
SCHEDULES: Final = {"eps": "karras", "flow": "simple"}

Tensors = Mapping[str, torch.Tensor]


def cases(goldens: Path) -> Iterator[Case]:
    """Masks, whole runs, nodes, and the channels of inpainting models."""
    recorded = json.loads((goldens / "inpaint.json").read_text("utf-8"))
    tensors = load_file(goldens / "inpaint.safetensors")
    for case in recorded["reshape_mask"]:
        yield Case(f"inpaint/{case['key']}", partial(_mask, case, tensors))
    for key in (name.removesuffix("/final") for name in tensors if name.endswith("/final")):
        yield Case(f"inpaint/{key}", partial(_run, key, recorded, tensors))
    for case in recorded["concat_cond"]:
        yield Case(f"inpaint/{case['key']}", partial(_channels, case["key"], tensors))
    groups = {key.rpartition("/")[0] for key in tensors if key.startswith("VAEEncodeForInpaint/")}
    for key in sorted(groups | recorded["nodes"].keys()):
        is_encoded = key.startswith("VAEEncodeForInpaint/")
        compared = _encoded if is_encoded else _conditioned
        yield Case(f"inpaint/{key}", partial(compared, key, tensors))


def _mask(case: Any, tensors: Tensors) -> Outcome:
    shape = case["shape"]
    ours = latent_mask(tensors[f"in/mask/{case['mask']}"], torch.zeros(shape)).expand(shape)
    return close(ours, tensors[case["key"]], MASK_TOLERANCE)


def _run(key: str, recorded: Any, tensors: Tensors) -> Outcome:
    """By KSampler. Scales as in `sampler_nodes.py`: ours is taken out, the recorded one put in."""
    kind, *_ = key.split("/")
    graph, scale = Graph(key), SCALES[kind]
    samples = tensors["in/latent"] * (scale / SCALE)
    if "empty_latent" in key:
        samples = torch.zeros_like(samples)
        _, _, name = key.split("/")
        mask, denoise = "latent1", 1.0
    else:
        _, name, mask, amount, *more = key.split("/")
        denoise = float(amount[1:])
        for patch in more:
            strength = float(patch.removeprefix("diffdiff") or 1.0)
            (graph.handle,) = graph.node(
                "DifferentialDiffusion", model=graph.handle, strength=strength
            )
    (latent,) = graph.node(
        "SetLatentNoiseMask",
        samples=graph.given(Latent(samples=samples), "LATENT"),
        mask=graph.given(tensors[f"in/mask/{mask}"], "MASK"),
    )
    (output,) = graph.node(
        "KSampler",
        model=graph.handle,
        seed=recorded["seed"],
        steps=recorded["steps"],
        cfg=recorded["cfg"],
        sampler_name=name,
        scheduler=SCHEDULES[kind],
        positive=graph.side(recorded["positive"]),
        negative=graph.side(recorded["negative"]),
        latent_image=latent,
        denoise=denoise,
    )
    final = graph.latents(output) * (SCALE / scale)
    return close(final, tensors[f"{key}/final"], RUN_TOLERANCE)


def _encoded(key: str, tensors: Tensors) -> Outcome:
    vae, size = ToyVae(), int(key.rpartition("grow")[2])
    args = _pictures(key, tensors) | {"grow_mask_by": size}
    (latent,) = run_op("vae_encode_inpaint", args, model=vae).outputs
    if not isinstance(latent, Latent) or latent.noise_mask is None:
        return Outcome(float("inf"), MASK_TOLERANCE, "no masked latent came out")
    given = {"samples": latent.samples, "noise_mask": latent.noise_mask}
    return _all_close(key, given | {"pixels_encoded": torch.cat(vae.seen)}, tensors)


def _conditioned(key: str, tensors: Tensors) -> Outcome:
    vae, is_masked = ToyVae(), key.endswith("1")
    args = _pictures(key, tensors) | {"noise_mask": is_masked}
    args |= {"positive": steer(0.4), "negative": steer(-0.25)}
    *sides, latent = run_op("inpaint_conditioning", args, model=vae).outputs
    if not isinstance(latent, Latent) or (latent.noise_mask is not None) is not is_masked:
        return Outcome(float("inf"), MASK_TOLERANCE, "the latent has a mask, or lacks one")
    given = {f"pixels_encoded{number}": pixels for number, pixels in enumerate(vae.seen)}
    given["samples"] = latent.samples
    if latent.noise_mask is not None:
        given["noise_mask"] = latent.noise_mask
    outcomes = [_all_close(key, given, tensors)]
    for side in sides:
        if not isinstance(side, Conditioning):
            raise TypeError(f"{type(side).__name__} is no conditioning")
        for entry in side.entries:
            if entry.concat_latent is None or entry.concat_mask is None:
                return Outcome(float("inf"), MASK_TOLERANCE, "an entry has no masked picture")
            both = {"concat_latent_image": entry.concat_latent, "concat_mask": entry.concat_mask}
            outcomes.append(_all_close(key, both, tensors))
    return worst(outcomes)


def _channels(key: str, tensors: Tensors) -> Outcome:
    """The recorded latents are scaled already, the picture on the conditioning isn't."""
    prefix = f"{key}/in/"
    given = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    latents, kept = given["latent_image"], None
    if (mask := given.get("denoise_mask")) is not None:
        kept = KeptPicture(mask=mask, latents=latents, noise=torch.zeros_like(latents))
    run = SamplingRun(
        state=SamplerState(x=torch.zeros_like(latents)), generator=sampler_generator(0), kept=kept
    )
    entry = CondEntry(
        cond=torch.zeros(1, 4, 8),
        pooled=None,
        concat_latent=given.get("concat_latent_image"),
        concat_mask=given.get("concat_mask"),
    )
    return close(inpaint_channels(run, family("sd15"), entry), tensors[key], MASK_TOLERANCE)


def _pictures(key: str, tensors: Tensors) -> dict[str, object]:
    _, image, mask, _ = key.split("/")
    return {
        "pixels": tensors[f"in/pixels/{image}"],
        "mask": tensors[f"in/pmask/{mask.removeprefix('mask')}"],
    }


def _all_close(key: str, ours: Mapping[str, torch.Tensor], tensors: Tensors) -> Outcome:
    return worst(
        [close(one, tensors[f"{key}/{name}"], MASK_TOLERANCE) for name, one in ours.items()]
    )
