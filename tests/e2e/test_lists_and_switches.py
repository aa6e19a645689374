"""Lists, switches and animations, from a prompt to files over real executors."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from kit.cluster import Client, ServerProcess, connect
from kit.prompts import txt2img
from PIL import Image, ImageSequence

Prompt = dict[str, Any]
NUM_ITEMS = 3
EIGHT_BIT_STEPS = 2  # a batch of three and three of one differ in float32's last digits


def node(class_type: str, **inputs: object) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def several(prefix: str) -> Prompt:
    """The classic prompt, of NUM_ITEMS pictures."""
    prompt = txt2img(prefix=prefix, steps=2)
    prompt["5"]["inputs"]["batch_size"] = NUM_ITEMS
    return prompt


@pytest.fixture
def still(shared_server: ServerProcess) -> str:
    """A picture in the input folder."""
    Image.new("RGB", (16, 8), (10, 200, 30)).save(shared_server.base / "input" / "still.png")
    return "still.png"


async def pictures_of(client: Client, prompt: Prompt) -> list[np.ndarray]:
    """What node 9 saved, in the order that it is told in."""
    entry = await client.run(prompt)
    assert entry["status"]["status_str"] == "success", entry["status"]
    count = len(entry["outputs"]["9"]["images"])
    data = [await client.picture(entry, "9", index) for index in range(count)]
    return [np.asarray(Image.open(io.BytesIO(one)).convert("RGB"), dtype=np.int16) for one in data]


async def test_the_items_of_a_list_are_sampled_one_by_one_as_those_of_a_batch(
    shared_server: ServerProcess,
) -> None:
    listed = several("listed")
    listed["20"] = node("RebatchLatents", latents=["5", 0], batch_size=1)
    listed["3"]["inputs"]["latent_image"] = ["20", 0]
    async with connect(shared_server.url) as client:
        one_by_one = await pictures_of(client, listed)
        together = await pictures_of(client, several("together"))
    assert len(one_by_one) == len(together) == NUM_ITEMS
    assert not np.array_equal(together[0], together[1])
    for one, other in zip(one_by_one, together, strict=True):
        assert np.abs(one - other).max() <= EIGHT_BIT_STEPS


@pytest.mark.parametrize("chosen", [True, ["21", 0]], ids=["literal", "known when it runs"])
async def test_the_other_side_of_a_switch_is_not_run(
    shared_server: ServerProcess, still: str, chosen: object
) -> None:
    prompt = txt2img(prefix="switched") | {
        "20": node("LoadImage", image=still),
        "21": node(
            "RegexMatch",
            string="a cat",
            regex_pattern="c.t",
            case_insensitive=False,
            multiline=False,
            dotall=False,
        ),
        "22": node("ComfySwitchNode", switch=chosen, on_false=["8", 0], on_true=["20", 0]),
    }
    prompt["9"]["inputs"]["images"] = ["22", 0]
    async with connect(shared_server.url) as client:
        entry = await client.run(prompt)
        saved = Image.open(io.BytesIO(await client.picture(entry, "9")))
        told = {text["data"].get("node") for text in client.texts(entry["prompt"][1])}
    assert saved.size == (16, 8)
    assert "20" in told
    assert told.isdisjoint({"3", "5", "6", "7", "8"})


@pytest.mark.parametrize(
    ("class_type", "settings"),
    [
        ("SaveAnimatedWEBP", {"lossless": True, "quality": 80, "method": "fastest"}),
        ("SaveAnimatedPNG", {"compress_level": 1}),
    ],
)
async def test_an_animation_is_saved_told_and_loaded_again(
    shared_server: ServerProcess, class_type: str, settings: dict[str, object]
) -> None:
    prompt = several("moving")
    images = prompt["9"]["inputs"]["images"]
    prompt["10"] = node(class_type, images=images, filename_prefix="moving", fps=8.0, **settings)
    async with connect(shared_server.url) as client:
        entry = await client.run(prompt)
        assert entry["outputs"]["10"]["animated"] == [True]
        (saved,) = entry["outputs"]["10"]["images"]
        frames = Image.open(io.BytesIO(await client.picture(entry, "10")))
        read = [np.asarray(f.convert("RGB")) for f in ImageSequence.Iterator(frames)]
        again = {
            "1": node("LoadImageOutput", image=f"{saved['filename']} [output]"),
            "9": node("SaveImage", images=["1", 0], filename_prefix="stills"),
        }
        loaded = await pictures_of(client, again)
    assert len(read) == NUM_ITEMS
    for frame, picture in zip(read, loaded, strict=True):
        assert np.array_equal(frame, picture)
