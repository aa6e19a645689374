"""Whole graphs through the op bodies, in one process, give the numbers that ComfyUI gave.

The goldens (10 MB) and the checkpoint (0.5 GB, made once into pytest's cache) are not in the
checkout: without the full goldens these tests are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.checkpoints import load_model, peer_checkpoint
from kit.goldens import golden_folder
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.ir import NodeId
from nodeloom.graph_import.model import Model
from nodeloom.graph_import.sampling.samplers import sampler
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext
from nodeloom.runtime.ops.registry import body
from nodeloom.runtime.values import Conditioning, Latent
from safetensors.torch import load_file

CASES = (
    "sd15-euler",
    "sd15-euler-wide",
    "sd15-euler-ancestral",
    "sd15-dpmpp2m-karras",
    "sd15-batch2",
    "sd15-cfg1",
    "sd15-img2img",
    "sd15-long-prompt",
)
RELATIVE = 1e-4  # of the reference's deviation: latents and conditioning
ABSOLUTE = 1e-4  # pictures

Loaded = dict[Role, Model]


@dataclass(slots=True)
class Walk:
    """Evaluates a prompt graph by calling bodies, as lowering and executors would."""

    graph: Mapping[str, Any]
    models: Loaded
    pictures: Path
    known: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def run(self, op: str, role: Role | None = None, **args: object) -> tuple[Any, ...]:
        context = OpContext(
            model=self.models[role] if role else None,
            folders=Folders(*[self.pictures] * 4),
            check_cancelled=lambda: None,
            is_strict=True,
            preview_size=64,
            is_metadata_disabled=False,
        )
        call = OpCall(request_id=RequestId("r"), node_id=NodeId("1"), args=args, hidden={})
        return body(op)(context, [call])[0].outputs

    def value(self, link: list[Any]) -> Any:
        """What the output `link` = [node id, slot] gives."""
        if link[0] not in self.known:
            self.known[link[0]] = self.evaluate(self.graph[link[0]])
        return self.known[link[0]][link[1]]

    def evaluate(self, node: Mapping[str, Any]) -> tuple[Any, ...]:
        inputs = node["inputs"]
        match node["class_type"]:
            case "CLIPTextEncode":
                return self.run("text_encode", Role.TEXT_ENCODER, text=inputs["text"])
            case "EmptyLatentImage":
                return self.run("empty_latent", **inputs)
            case "LoadImage":
                file = identify(self.pictures / inputs["image"])
                return self.run(
                    "load_image",
                    path=file.path,
                    size_bytes=file.size_bytes,
                    mtime_ns=file.mtime_ns,
                )
            case "VAEEncode":
                pixels = self.value(inputs["pixels"])
                return self.run("vae_encode", Role.VAE, pixels=pixels)
            case "VAEDecode":
                samples = self.value(inputs["samples"])
                return self.run("vae_decode", Role.VAE, samples=samples)
            case "KSampler":
                return self.sample(inputs)
            case other:
                raise AssertionError(f"the walk knows no {other}")

    def sample(self, inputs: Mapping[str, Any]) -> tuple[Latent]:
        name = inputs["sampler_name"]
        sigmas = ksampler_sigmas(
            family("sd15").model_sampling,
            inputs["scheduler"],
            inputs["steps"],
            inputs["denoise"],
            name,
        )
        latent = self.value(inputs["latent_image"])
        common = {"sampler": name, "sigmas": sigmas, "family": "sd15"}
        positive, negative = self.value(inputs["positive"]), self.value(inputs["negative"])
        (state,) = self.run("sample_begin", latent=latent, seed=inputs["seed"], **common)
        for evaluation in sampler(name).plan(sigmas):
            (state,) = self.run(
                "denoise",
                Role.DENOISER,
                state=state,
                positive=positive,
                negative=negative,
                cfg=inputs["cfg"],
                evaluation=evaluation.index,
                **common,
            )
        (latent,) = self.run("sample_end", state=state, **common)
        return (latent,)


@pytest.fixture(scope="module")
def goldens() -> Path:
    return golden_folder("full") / "e2e"


@pytest.fixture(scope="module")
def models(goldens: Path, pytestconfig: pytest.Config) -> Loaded:
    cache = pytestconfig.cache
    assert cache is not None
    checkpoint = peer_checkpoint(cache.mkdir("nodeloom-checkpoints"))
    return {role: load_model(checkpoint, role) for role in Role}


def tensors_of(value: Any) -> dict[str, torch.Tensor]:
    if isinstance(value, Conditioning):
        (entry,) = value.entries
        assert entry.pooled is not None
        return {"": entry.cond, ".pooled": entry.pooled}
    return {"": value.samples if isinstance(value, Latent) else value}


@pytest.mark.parametrize("case", CASES)
def test_a_graph_gives_the_tensors_that_comfyui_gave(
    case: str, goldens: Path, models: Loaded
) -> None:
    graph = json.loads((goldens / f"{case}.json").read_text("utf-8"))
    recorded = load_file(goldens / f"{case}.safetensors")
    walk = Walk(graph, models, goldens / "inputs")
    compared: set[str] = set()
    for node_id, node in graph.items():
        kept = node.get("_meta", {}).get("title", "").removeprefix("keep ")
        if kept not in recorded:
            continue
        for suffix, tensor in tensors_of(walk.value([node_id, 0])).items():
            reference = recorded[kept + suffix]
            assert tensor.shape == reference.shape
            limit = ABSOLUTE if kept == "image" else RELATIVE * reference.std().item()
            error = (tensor - reference).abs().max().item()
            assert error <= limit, (kept + suffix, error, limit)
            compared.add(kept + suffix)
    assert compared == set(recorded)
