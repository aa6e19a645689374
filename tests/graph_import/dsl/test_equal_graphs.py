"""A workflow in Python and the ComfyUI graph of the same meaning are the same DAG nodes."""

from __future__ import annotations

from typing import Any

import pytest

from ..known_files import CHECKPOINT, PICTURE
from ..prompts import Prompt, node, text_to_image
from .flows import MODELS, bound, contents, flow, of_comfyui

SAMPLED = """
@workflow
def sampled(seed: int = 7, steps: int = 3, cfg: float = 7.5):
{models}
    {before}
    positive, negative = text_encoder("a cat"), text_encoder("blurry")
    latents = generator({call})
    for _ in range(steps):
        {inside}
        latents = step(denoiser(latents, positive, negative, {residuals}, cfg=cfg), latents)
    return {{"out": vae.decode(latents)}}
"""
PLAIN = "seed, steps, width=64, height=64"


def sampled(
    *,
    models: str = MODELS,
    before: str = "",
    inside: str = "",
    residuals: str = "()",
    call: str = PLAIN,
) -> str:
    indented = "".join(f"    {line}\n" for line in models.strip().splitlines())
    return SAMPLED.format(
        models=indented, before=before, inside=inside or "pass", residuals=residuals, call=call
    )


def assert_equal(text: str, prompt: Prompt, **values: Any) -> None:
    prompt["9"]["inputs"]["filename_prefix"] = "out"
    assert contents(bound(flow(text), **values).graph) == contents(of_comfyui(prompt))


@pytest.mark.parametrize("sampler", ["euler", "euler_ancestral", "heun", "dpmpp_2m"])
@pytest.mark.parametrize("schedule", ["normal", "karras", "simple"])
def test_a_loop_is_a_ksampler(sampler: str, schedule: str) -> None:
    models = MODELS.replace("(denoiser)", f"(denoiser, sampler={sampler!r}, schedule={schedule!r})")
    prompt = text_to_image(sampler_name=sampler, scheduler=schedule)
    assert_equal(sampled(models=models), prompt)


def test_values_are_data_of_the_same_program() -> None:
    prompt = text_to_image(seed=2**64 - 1, cfg=1.0, steps=5)
    assert_equal(sampled(), prompt, seed=2**64 - 1, cfg=1, steps=5)


def test_a_lora_on_the_denoiser_is_lora_loader_model_only() -> None:
    prompt = text_to_image()
    prompt["10"] = node(
        "LoraLoaderModelOnly",
        model=["4", 0],
        lora_name="my-loras.safetensors",
        strength_model=0.5,
    )
    prompt["3"]["inputs"]["model"] = ["10", 0]
    before = "denoiser.add_patch(LoRA('my-loras.safetensors', 0.5))"
    assert_equal(sampled(before=before), prompt)


def test_a_lora_on_both_is_lora_loader() -> None:
    prompt = text_to_image()
    prompt["10"] = node(
        "LoraLoader",
        model=["4", 0],
        clip=["4", 1],
        lora_name="my-loras.safetensors",
        strength_model=0.5,
        strength_clip=0.5,
    )
    prompt["3"]["inputs"]["model"] = ["10", 0]
    for encoder in ("6", "7"):
        prompt[encoder]["inputs"]["clip"] = ["10", 1]
    before = (
        "lora = LoRA('my-loras.safetensors', 0.5); denoiser.add_patch(lora); "
        "text_encoder.add_patch(lora)"
    )
    assert_equal(sampled(before=before), prompt)


@pytest.mark.parametrize("num_controlnets", [1, 2])
def test_controlnets_called_in_the_loop_are_apply_controlnet(num_controlnets: int) -> None:
    prompt = text_to_image()
    prompt["20"] = node("LoadImage", image=PICTURE)
    prompt["21"] = node("ControlNetLoader", control_net_name="controlnet.safetensors")
    sides: list[list[object]] = [["6", 0], ["7", 0]]
    for index in range(num_controlnets):
        prompt[f"3{index}"] = node(
            "ControlNetApplyAdvanced",
            positive=sides[0],
            negative=sides[1],
            control_net=["21", 0],
            image=["20", 0],
            strength=0.5 + index,
            start_percent=0.0,
            end_percent=1.0,
        )
        sides = [[f"3{index}", 0], [f"3{index}", 1]]
    prompt["3"]["inputs"] |= {"positive": sides[0], "negative": sides[1]}
    text = sampled(
        before=(
            f"hint, _ = Node('LoadImage')('{PICTURE}'); "
            "controlnet = ControlNet('controlnet.safetensors')"
        ),
        inside=(
            "residuals = [controlnet(latents, positive, negative, hint, 0.5 + index) "
            f"for index in range({num_controlnets})]"
        ),
        residuals="residuals",
    )
    assert_equal(text, prompt)


def test_a_picture_to_start_from_and_a_denoise() -> None:
    prompt = text_to_image(denoise=0.5, latent_image=["21", 0])
    prompt["20"] = node("LoadImage", image=PICTURE)
    prompt["21"] = node("VAEEncode", pixels=["20", 0], vae=["4", 2])
    text = sampled(call="seed, steps, vae.encode(image), denoise=0.5")
    text = text.replace("sampled(seed", "sampled(image: Image, seed")
    assert_equal(text, prompt, image=PICTURE)


def test_parts_in_files_of_their_own_and_an_earlier_layer() -> None:
    prompt = text_to_image()
    prompt["10"] = node("UNETLoader", unet_name="denoiser.safetensors", weight_dtype="default")
    prompt["11"] = node("CLIPLoader", clip_name="text_encoder.safetensors", type="stable_diffusion")
    prompt["12"] = node("CLIPSetLastLayer", clip=["11", 0], stop_at_clip_layer=-2)
    prompt["13"] = node("VAELoader", vae_name="vae.safetensors")
    prompt["3"]["inputs"]["model"] = ["10", 0]
    for encoder in ("6", "7"):
        prompt[encoder]["inputs"]["clip"] = ["12", 0]
    prompt["8"]["inputs"]["vae"] = ["13", 0]
    models = (
        MODELS.replace(
            f'TextEncoder("{CHECKPOINT}")', "TextEncoder(file='text_encoder.safetensors', layer=-2)"
        )
        .replace(f'Denoiser("{CHECKPOINT}")', "Denoiser(file='denoiser.safetensors')")
        .replace(f'Vae("{CHECKPOINT}")', "Vae(file='vae.safetensors')")
    )
    assert_equal(sampled(models=models), prompt)


@pytest.mark.parametrize(
    ("given", "loader"),
    [
        ("'t5xxl', type='sd3'", node("CLIPLoader", clip_name="t5xxl", type="sd3")),
        (
            "['clip_l', 't5xxl'], type='flux'",
            node("DualCLIPLoader", clip_name1="t5xxl", clip_name2="clip_l", type="flux"),
        ),
        (
            "('clip_g', 'clip_l', 't5xxl')",
            node("TripleCLIPLoader", clip_name1="clip_l", clip_name2="clip_g", clip_name3="t5xxl"),
        ),
    ],
)
def test_a_text_encoder_of_one_to_three_files(given: str, loader: dict[str, Any]) -> None:
    prompt = text_to_image() | {"11": loader}
    for encoder in ("6", "7"):
        prompt[encoder]["inputs"]["clip"] = ["11", 0]
    models = MODELS.replace(f'TextEncoder("{CHECKPOINT}")', f"TextEncoder(file={given})")
    assert_equal(sampled(models=models), prompt)


def test_any_node_class_is_callable() -> None:
    prompt = text_to_image()
    text = f"""
    @workflow
    def by_nodes(seed: int = 7):
        model, clip, vae = Node("CheckpointLoaderSimple")("{CHECKPOINT}")
        words = Node("CLIPTextEncode")
        latent = Node("EmptyLatentImage")(width=64, height=64)
        sampled = Node("KSampler")(
            model, seed, 3, 7.5, "euler", "normal",
            words("a cat", clip), words("blurry", clip), latent,
        )
        return {{"out": Node("VAEDecode")(sampled, vae)}}
    """
    assert_equal(text, prompt)


def test_the_prompt_of_a_workflow_is_one_in_api_format() -> None:
    prompt = bound(flow(sampled())).prompt.to_json()
    assert prompt["output-out"]["inputs"] == {"images": ["Vae-1", 0], "filename_prefix": "out"}
    assert prompt["SamplerStep-3"] == {
        "class_type": "nodeloom.SamplerStep",
        "inputs": {"estimate": ["Denoiser-3", 0], "latents": ["SamplerStep-2", 0]},
        "_meta": {"title": "SamplerStep (flow.py:13)"},
    }
