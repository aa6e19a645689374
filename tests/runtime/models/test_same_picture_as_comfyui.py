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
from kit.checkpoints import SD15_ROLES, load_model, peer_checkpoint, write_peer_embedding
from kit.goldens import golden_folder
from nodeloom.graph_import.families import course_of, family
from nodeloom.graph_import.handles import CLIP_LAYER, ModelRef, Role
from nodeloom.graph_import.ir import NodeId
from nodeloom.graph_import.model import Model
from nodeloom.graph_import.sampling.samplers import sampler
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas, step_window
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext
from nodeloom.runtime.ops.registry import body
from nodeloom.runtime.sampling.preview import Previews
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
    "sd15-advanced",
    "sd15-inpaint-mask",
    "sd15-inpaint-mask-half",
    "sd15-inpaint-encode",
    "sd15-conds",
    "sd15-hires",
    "sd15-clip-skip",
    "sd15-embedding",
)
RELATIVE = 1e-4  # of the reference's deviation: latents and conditioning
ABSOLUTE = 1e-4  # pictures

# Class types that are one op, which takes all their inputs but the models; its model's role.
OPS: dict[str, tuple[str, Role | None]] = {
    "ConditioningCombine": ("conditioning_combine", None),
    "ConditioningSetArea": ("conditioning_set_area", None),
    "ConditioningSetTimestepRange": ("conditioning_set_timestep_range", None),
    "EmptyLatentImage": ("empty_latent", None),
    "LatentUpscale": ("latent_upscale", None),
    "SetLatentNoiseMask": ("set_noise_mask", None),
    "VAEDecode": ("vae_decode", Role.VAE),
    "VAEEncode": ("vae_encode", Role.VAE),
    "VAEEncodeForInpaint": ("vae_encode_inpaint", Role.VAE),
}
PICTURES = {"LoadImage": "load_image", "LoadImageMask": "load_image_mask"}
MODELS = ("clip", "model", "vae")

Loaded = dict[Role, Model]


@dataclass(slots=True)
class Walk:
    """Evaluates a prompt graph by calling bodies, as lowering and executors would."""

    graph: Mapping[str, Any]
    models: Loaded
    pictures: Path
    embedding: Path
    known: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def run(self, op: str, role: Role | None = None, **args: object) -> tuple[Any, ...]:
        context = OpContext(
            model=self.models[role] if role else None,
            folders=Folders(*[self.pictures] * 4),
            check_cancelled=lambda: None,
            is_strict=True,
            previews=Previews(64, (), "cpu"),
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
        inputs, class_type = node["inputs"], node["class_type"]
        if class_type.startswith("KSampler"):
            return self.sample(inputs)
        if class_type in PICTURES:
            file = identify(self.pictures / inputs["image"])
            known = {"path": file.path, "size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns}
            channel = {name: inputs[name] for name in inputs if name == "channel"}
            return self.run(PICTURES[class_type], **known, **channel)
        if class_type == "CLIPTextEncode":
            return self.encode(inputs)
        op, role = OPS[class_type]
        args = {
            name: self.value(given) if isinstance(given, list) else given
            for name, given in inputs.items()
            if name not in MODELS
        }
        return self.run(op, role, **args)

    def encode(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        encoder, source = self.models[Role.TEXT_ENCODER], self.graph[inputs["clip"][0]]
        layer = source["inputs"].get("stop_at_clip_layer")
        encoder.ref = ModelRef(
            key=encoder.ref.key, options=() if layer is None else ((CLIP_LAYER, layer),)
        )
        args = {"text": inputs["text"]}
        if "embedding:" in inputs["text"]:
            file = identify(self.embedding)
            entry = [self.embedding.stem, file.path, file.size_bytes, file.mtime_ns]
            args["embedding_0"] = json.dumps(entry)
        return self.run("text_encode", Role.TEXT_ENCODER, **args)

    def sample(self, inputs: Mapping[str, Any]) -> tuple[Latent]:
        name = inputs["sampler_name"]
        sigmas = ksampler_sigmas(
            family("sd15").model_sampling,
            inputs["scheduler"],
            inputs["steps"],
            inputs.get("denoise", 1.0),
            name,
        )
        if "start_at_step" in inputs:
            sigmas = step_window(
                sigmas,
                start=inputs["start_at_step"],
                end=inputs["end_at_step"],
                keeps_noise=inputs["return_with_leftover_noise"] == "enable",
            )
        latent = self.value(inputs["latent_image"])
        common = {"sampler": name, "sigmas": sigmas, "family": "sd15"}
        positive, negative = self.value(inputs["positive"]), self.value(inputs["negative"])
        (state,) = self.run(
            "sample_begin",
            latent=latent,
            seed=inputs["noise_seed" if "noise_seed" in inputs else "seed"],
            add_noise=inputs.get("add_noise", "enable") == "enable",
            **common,
        )
        for evaluation in sampler(name).plan(course_of("sd15", "", sigmas)):
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
        (latent,) = self.run("sample_end", state=state, latent=latent, **common)
        return (latent,)


@pytest.fixture(scope="module")
def goldens() -> Path:
    return golden_folder("full") / "e2e"


@pytest.fixture(scope="module")
def models(goldens: Path, pytestconfig: pytest.Config) -> Loaded:
    cache = pytestconfig.cache
    assert cache is not None
    checkpoint = peer_checkpoint(cache.mkdir("nodeloom-checkpoints"))
    return {role: load_model(checkpoint, role) for role in SD15_ROLES}


def tensors_of(value: Any) -> dict[str, torch.Tensor]:
    match value:
        case Conditioning(entries=(entry,)):
            assert entry.pooled is not None
            return {"": entry.cond, ".pooled": entry.pooled}
        case Latent(samples=samples, noise_mask=None):
            return {"": samples}
        case Latent(samples=samples, noise_mask=mask):
            return {"": samples, ".noise_mask": mask}
        case _:
            return {"": value}


@pytest.mark.parametrize("case", CASES)
def test_a_graph_gives_the_tensors_that_comfyui_gave(
    case: str, goldens: Path, models: Loaded, tmp_path: Path
) -> None:
    graph = json.loads((goldens / f"{case}.json").read_text("utf-8"))
    recorded = load_file(goldens / f"{case}.safetensors")
    embedding = write_peer_embedding(tmp_path)
    walk = Walk(graph, models, goldens / "inputs", embedding)
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
