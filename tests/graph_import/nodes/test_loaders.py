"""Node classes that name model files: handles, options, and refusals in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.graph_import.ir import Graph, Node
from nodeloom.graph_import.nodes.registry import Registry

from ..known_files import KnownFiles, every_file, identity, sd15
from ..prompts import Prompt, node, text_to_image

Import = Callable[[Prompt], Graph]


@pytest.fixture
def files() -> KnownFiles:
    return every_file()


def by_id(graph: Graph) -> dict[str, Node]:
    return {str(node_id): found for node_id, found in graph.by_id().items()}


def key(role: Role, dtype: str) -> ModelKey:
    file = identity(f"{role}.safetensors")
    return ModelKey(role=role, family="sd15", file=file, dtype=dtype)


def from_parts(**changes: object) -> Prompt:
    """Text to image with each model from a file of its own; `changes` are inputs of the loaders."""
    prompt = text_to_image()
    loaders = {
        "u": node("UNETLoader", unet_name="denoiser.safetensors", weight_dtype="default"),
        "v": node("VAELoader", vae_name="vae.safetensors"),
        "c": node("CLIPLoader", clip_name="text_encoder.safetensors", type="stable_diffusion"),
    }
    for loader in loaders.values():
        for name in ("unet_name", "weight_dtype", "vae_name", "clip_name", "type", "device"):
            if name in changes and (name in loader["inputs"] or name == "device"):
                loader["inputs"][name] = changes[name]
    prompt["3"]["inputs"]["model"] = ["u", 0]
    prompt["8"]["inputs"]["vae"] = ["v", 0]
    prompt["6"]["inputs"]["clip"] = prompt["7"]["inputs"]["clip"] = ["c", 0]
    return {**prompt, **loaders}


def test_each_model_may_come_from_a_file_of_its_own(imported: Import) -> None:
    nodes = by_id(imported(from_parts()))
    assert nodes["3/eval-0"].model == ModelRef(key=key(Role.DENOISER, "float32"))
    assert nodes["6"].model == ModelRef(key=key(Role.TEXT_ENCODER, "float16"))
    assert nodes["8"].model == ModelRef(key=key(Role.VAE, "float32"))


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("fp8_e4m3fn", "float8_e4m3fn"),
        ("fp8_e4m3fn_fast", "float8_e4m3fn"),
        ("fp8_e5m2", "float8_e5m2"),
    ],
)
def test_a_denoiser_may_be_held_in_eight_bits(imported: Import, asked: str, stored: str) -> None:
    nodes = by_id(imported(from_parts(weight_dtype=asked)))
    assert nodes["3/eval-0"].model == ModelRef(key=key(Role.DENOISER, stored))


def test_a_device_may_be_asked_for(imported: Import) -> None:
    assert imported(from_parts(device="cpu")) == imported(from_parts())


@pytest.mark.parametrize(
    ("changes", "node_id", "reason"),
    [
        ({"type": "flux2"}, "c", "type - text encoders of type flux2 are not supported yet"),
        ({"vae_name": "pixel_space"}, "v", "vae_name - pixel_space, pictures as latents, is not"),
        ({"vae_name": "wrong"}, "v", "vae_name - wrong is a denoiser, not a vae"),
        ({"unet_name": "odd"}, "u", "unet_name - this is a model of no known kind"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(
    imported: Import,
    files: KnownFiles,
    registry: Registry,
    changes: dict[str, object],
    node_id: str,
    reason: str,
) -> None:
    files.parts["vae", "wrong"] = sd15("wrong", frozenset({Role.DENOISER}))
    files.parts["diffusion_models", "odd"] = "this is a model of no known kind"
    with pytest.raises(ImportRejected) as caught:
        imported(from_parts(**changes))
    details = [p.details for p in caught.value.problems if p.node_id == node_id]
    assert len(details) == 1
    assert details[0].startswith(reason)


def test_a_file_that_goes_after_validation_is_named(
    check: Callable[[Prompt], Validated], registry: Registry, files: KnownFiles
) -> None:
    prompt = from_parts()
    prompt["up"] = node("UpscaleModelLoader", model_name="upscaler.safetensors")
    prompt["big"] = node("ImageUpscaleWithModel", upscale_model=["up", 0], image=["8", 0])
    prompt["9"]["inputs"]["images"] = ["big", 0]
    valid = check(prompt)
    assert valid.problems == ()
    files.parts.clear()
    with pytest.raises(ImportRejected, match="failed validation") as caught:
        import_prompt(valid.prompt, valid.roots, registry, files)
    assert {p.node_id: p.details.partition(" - ")[2] for p in caught.value.problems} == {
        "u": "there is no file 'denoiser.safetensors' in diffusion_models",
        "v": "there is no file 'vae.safetensors' in vae",
        "c": "there is no file 'text_encoder.safetensors' in text_encoders",
        "up": "there is no file 'upscaler.safetensors' in upscale_models",
    }


def test_an_upscaler_is_the_model_of_its_node(imported: Import) -> None:
    prompt = text_to_image()
    prompt["up"] = node("UpscaleModelLoader", model_name="upscaler.safetensors")
    prompt["big"] = node("ImageUpscaleWithModel", upscale_model=["up", 0], image=["8", 0])
    prompt["9"]["inputs"]["images"] = ["big", 0]
    big = by_id(imported(prompt))["big"]
    assert big.op == "image_upscale"
    assert big.model == ModelRef(key=key(Role.UPSCALER, "float32"))


def test_the_last_choice_of_a_layer_counts(imported: Import) -> None:
    prompt = text_to_image()
    prompt["s"] = node("CLIPSetLastLayer", clip=["4", 1], stop_at_clip_layer=-3)
    prompt["t"] = node("CLIPSetLastLayer", clip=["s", 0], stop_at_clip_layer=-2)
    prompt["6"]["inputs"]["clip"] = ["t", 0]
    nodes = by_id(imported(prompt))
    chosen = nodes["6"].model
    assert chosen is not None
    assert chosen.options == (("clip_layer", -2),)
    assert nodes["7"].model == ModelRef(key=chosen.key)
