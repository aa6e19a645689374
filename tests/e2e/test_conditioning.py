"""Regions, masks and windows of steps, from a prompt to a picture over real executors."""

from __future__ import annotations

import io
from typing import Any

import pytest
from kit.cluster import ServerProcess, connect
from kit.prompts import txt2img
from PIL import Image, ImageChops, ImageStat

Prompt = dict[str, Any]


def node(class_type: str, **inputs: object) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


@pytest.fixture
def masked_picture(shared_server: ServerProcess) -> str:
    """A picture in the input folder whose left half is masked: transparent."""
    picture = Image.new("RGBA", (64, 64), (200, 40, 40, 255))
    picture.paste((40, 40, 200, 0), (0, 0, 32, 64))
    picture.save(shared_server.base / "input" / "masked.png")
    return "masked.png"


def with_regions(prompt: Prompt, picture: str) -> Prompt:
    """The positive side becomes every conditioning node, one after another."""
    return prompt | {
        "20": node("LoadImage", image=picture),
        "21": node("CLIPTextEncode", text="a blue ball on a lawn", clip=["4", 1]),
        "22": node(
            "ConditioningSetArea",
            conditioning=["21", 0],
            width=64,
            height=64,
            x=32,
            y=0,
            strength=0.8,
        ),
        "23": node("ConditioningSetTimestepRange", conditioning=["22", 0], start=0.0, end=0.6),
        "24": node("ConditioningCombine", conditioning_1=["6", 0], conditioning_2=["23", 0]),
        "25": node(
            "ConditioningSetMask",
            conditioning=["21", 0],
            mask=["20", 1],
            strength=0.5,
            set_cond_area="mask bounds",
        ),
        "26": node("ConditioningCombine", conditioning_1=["24", 0], conditioning_2=["25", 0]),
        "27": node(
            "ConditioningAverage",
            conditioning_to=["6", 0],
            conditioning_from=["21", 0],
            conditioning_to_strength=0.3,
        ),
        "28": node("ConditioningConcat", conditioning_to=["27", 0], conditioning_from=["21", 0]),
        "29": node(
            "ConditioningSetAreaPercentage",
            conditioning=["28", 0],
            width=0.5,
            height=0.5,
            x=0.25,
            y=0.25,
            strength=1.0,
        ),
        "30": node("ConditioningCombine", conditioning_1=["26", 0], conditioning_2=["29", 0]),
        "31": node("ConditioningZeroOut", conditioning=["7", 0]),
    }


def sampler(prompt: Prompt, **inputs: object) -> dict[str, Any]:
    """A KSamplerAdvanced of 4 steps like the prompt's KSampler, with other inputs."""
    names = ("cfg", "sampler_name", "scheduler", "model", "positive", "negative", "latent_image")
    own = {name: prompt["3"]["inputs"][name] for name in names}
    return node("KSamplerAdvanced", **{**own, "noise_seed": 5, "steps": 4, **inputs})


async def picture_of(server: ServerProcess, prompt: Prompt) -> Image.Image:
    async with connect(server.url) as client:
        entry = await client.run(prompt)
        assert entry["status"]["status_str"] == "success", entry["status"]
        return Image.open(io.BytesIO(await client.picture(entry, "9"))).convert("RGB")


async def test_regions_under_two_windows_of_steps(
    shared_server: ServerProcess, masked_picture: str
) -> None:
    prompt = with_regions(txt2img(prefix="regions"), masked_picture)
    sides = {"positive": ["30", 0], "negative": ["31", 0]}
    prompt["40"] = sampler(
        prompt,
        **sides,
        add_noise="enable",
        start_at_step=0,
        end_at_step=2,
        return_with_leftover_noise="enable",
    )
    prompt["41"] = sampler(
        prompt,
        **sides,
        latent_image=["40", 0],
        add_noise="disable",
        start_at_step=2,
        end_at_step=10000,
        return_with_leftover_noise="disable",
    )
    del prompt["3"]
    prompt["8"]["inputs"]["samples"] = ["41", 0]
    picture = await picture_of(shared_server, prompt)
    assert picture.size == (64, 64)
    assert picture.convert("L").getextrema()[0] != picture.convert("L").getextrema()[1]


@pytest.mark.parametrize("way", ["set", "encode", "conditioning"])
async def test_the_unmasked_half_stays(
    shared_server: ServerProcess, masked_picture: str, way: str
) -> None:
    """Two seeds differ on the masked half alone, apart from what the VAE sees across the border."""
    pictures = []
    for seed in (1, 2):
        prompt = txt2img(seed=seed, prefix="inpaint") | {
            "20": node("LoadImage", image=masked_picture),
            "21": node("VAEEncode", pixels=["20", 0], vae=["4", 2]),
            "22": node("SetLatentNoiseMask", samples=["21", 0], mask=["20", 1]),
            "23": node(
                "VAEEncodeForInpaint",
                pixels=["20", 0],
                vae=["4", 2],
                mask=["20", 1],
                grow_mask_by=0,
            ),
            "24": node(
                "InpaintModelConditioning",
                positive=["6", 0],
                negative=["7", 0],
                vae=["4", 2],
                pixels=["20", 0],
                mask=["20", 1],
                noise_mask=True,
            ),
        }
        changes: dict[str, dict[str, object]] = {
            "set": {"latent_image": ["22", 0]},
            "encode": {"latent_image": ["23", 0]},
            "conditioning": {
                "positive": ["24", 0],
                "negative": ["24", 1],
                "latent_image": ["24", 2],
            },
        }
        prompt["3"]["inputs"] |= changes[way]
        pictures.append(await picture_of(shared_server, prompt))
    difference = ImageChops.difference(*pictures)
    masked, kept = (ImageStat.Stat(difference.crop((x, 0, x + 24, 64))) for x in (0, 40))
    assert sum(masked.mean) > 4 * sum(kept.mean)


def with_default(picture: str, *, text: str, end: float, is_masked: bool) -> Prompt:
    """The prompt's texts on the masked half until `end` of the sampling; elsewhere another text."""
    prompt = txt2img(prefix="default") | {
        "20": node("LoadImage", image=picture),
        "21": node("CLIPTextEncode", text=text, clip=["4", 1]),
        "22": node("ConditioningTimestepsRange", start_percent=0.0, end_percent=end),
        "23": node(
            "PairConditioningSetProperties",
            positive_NEW=["6", 0],
            negative_NEW=["7", 0],
            strength=1.0,
            set_cond_area="default",
            timesteps=["22", 0],
        ),
        "24": node(
            "PairConditioningSetDefaultCombine",
            positive=["23", 0],
            negative=["23", 1],
            positive_DEFAULT=["21", 0],
            negative_DEFAULT=["7", 0],
        ),
    }
    if is_masked:
        prompt["23"]["inputs"]["mask"] = ["20", 1]
    prompt["3"]["inputs"] |= {"positive": ["24", 0], "negative": ["24", 1]}
    return prompt


async def test_a_default_counts_where_and_when_the_others_do_not(
    shared_server: ServerProcess, masked_picture: str
) -> None:
    text = "a blue ball on a lawn"
    first, second = txt2img(), txt2img()
    second["6"]["inputs"]["text"] = text
    alone = [await picture_of(shared_server, prompt) for prompt in (first, second)]

    async def drawn(end: float, *, is_masked: bool) -> Image.Image:
        prompt = with_default(masked_picture, text=text, end=end, is_masked=is_masked)
        return await picture_of(shared_server, prompt)

    def difference(one: Image.Image, other: Image.Image) -> float:
        return float(max(ImageStat.Stat(ImageChops.difference(one, other)).mean))

    always, never = await drawn(1.0, is_masked=False), await drawn(0.0, is_masked=False)
    assert difference(always, alone[0]) < 0.5
    assert difference(never, alone[1]) < 0.5
    mixed = await drawn(0.6, is_masked=True)
    assert min(difference(mixed, picture) for picture in alone) > 0.5
