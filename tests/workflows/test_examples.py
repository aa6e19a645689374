"""The examples run on the models that ship, loaded and bound as users' files are, in process.

The custom model is run by hand: what an executor does with `user_model` nodes is tested with it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.in_process import InProcess
from nodeloom import workflows
from nodeloom.graph_import.dsl import Definition, Model, bind, run_source, workflows_in
from nodeloom.graph_import.ir import Graph
from nodeloom.runtime.models.tiny import write_tiny_sd15
from nodeloom.server.demo_models import lay_example_pictures
from PIL import Image

FOLDER = Path(workflows.__file__).parent
VALUES: dict[str, dict[str, Any]] = {
    "text_to_image": {"prompt": "a red star", "steps": 2, "size": 64},
    "sd15_controlnet_lora": {"prompt": "a red star", "ref_image": "contours.png"},
    "ensemble": {
        "prompt": "a red star",
        "steps": 3,
        "coarse_steps": 2,
        "size": 64,
        "fine": "other.safetensors",
    },
    "redraw": {"image": "example.png", "prompt": "a red star", "steps": 2},
    "image_chain": {"image": "example.png", "prompt": "a red star", "steps": 2, "size": 64},
}
JSON_EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.json"))


def example(name: str) -> dict[str, Definition]:
    path = FOLDER / f"{name}.py"
    return workflows_in(run_source(path.read_bytes(), path.name, str(path)))


EXAMPLES = {
    name: definition
    for path in sorted(FOLDER.glob("[!_]*.py"))
    for name, definition in example(path.stem).items()
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> InProcess:
    """A process with the models that ship, one more checkpoint, and the pictures."""
    base = tmp_path_factory.mktemp("examples")
    (base / "models" / "checkpoints").mkdir(parents=True)
    write_tiny_sd15(base / "models" / "checkpoints" / "other.safetensors", seed=1)
    (base / "input").mkdir()
    lay_example_pictures(base / "input")
    Image.new("RGB", (128, 128)).save(base / "input" / "plain.png")
    return InProcess(base, demo_models="on")


def run(process: InProcess, name: str, **values: object) -> dict[str, torch.Tensor]:
    """The pictures of an example, by output."""
    given = {**VALUES[name], **values}
    invocation = bind(EXAMPLES[name], given, process.registry, process.catalog)
    prompt = invocation.prompt.to_json()
    made = process.run(prompt)
    sources = {o: prompt[n]["inputs"]["images"] for o, n in invocation.outputs.items()}
    return {output: made[node_id][slot] for output, (node_id, slot) in sources.items()}


def test_every_example_is_here() -> None:
    assert EXAMPLES.keys() == VALUES.keys() | {"sharpen"}


@pytest.mark.parametrize("name", VALUES)
def test_an_example_makes_pictures_and_the_same_again(name: str, process: InProcess) -> None:
    pictures = run(process, name)
    again = run(process, name)
    for output, picture in pictures.items():
        assert picture.shape[-1] == 3
        assert picture.std() > 0.0
        assert torch.equal(picture, again[output])


@pytest.mark.parametrize("name", JSON_EXAMPLES)
def test_a_json_example_makes_a_picture_of_its_size(name: str, process: InProcess) -> None:
    prompt = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    for node in prompt.values():
        if node["class_type"] == "KSampler":
            node["inputs"]["steps"] = 3
    picture = process.run(prompt)["8"][0]
    side = 192 if name == "hires_fix" else 128
    assert picture.shape == (4 if name == "batch" else 1, side, side, 3)
    assert picture.std() > 0.0


def without_saving(graph: Graph) -> Counter[str]:
    return Counter(node.signature for node in graph.nodes if node.op != "save_image")


def test_the_python_and_the_json_example_are_one_workflow(process: InProcess) -> None:
    prompt = json.loads((FOLDER / "txt2img.json").read_text("utf-8"))
    values = {
        "prompt": prompt["6"]["inputs"]["text"],
        "negative_prompt": prompt["7"]["inputs"]["text"],
    }
    invocation = bind(EXAMPLES["text_to_image"], values, process.registry, process.catalog)
    assert without_saving(invocation.graph) == without_saving(process.lower(prompt))
    picture = run(process, "text_to_image", **values, size=128, steps=20)["image"]
    assert torch.equal(picture, process.run(prompt)["8"][0])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sd15_controlnet_lora", {"ref_image": "plain.png"}),
        ("sd15_controlnet_lora", {"lora": "nodeloom-shapes-sepia.safetensors"}),
        ("ensemble", {"coarse_steps": 1}),
        ("ensemble", {"fine": "nodeloom-shapes.safetensors"}),
    ],
)
def test_every_part_shows(name: str, change: dict[str, Any], process: InProcess) -> None:
    ((output, picture),) = run(process, name).items()
    assert not torch.equal(picture, run(process, name, **change)[output])


def test_the_custom_model_sharpens() -> None:
    sharpen = EXAMPLES["sharpen"]
    model = sharpen._function.__globals__["Sharpen"](radius=1)  # type: ignore[attr-defined]  # a @workflow
    assert isinstance(model, Model)
    model.load("cpu")
    edge = torch.zeros(1, 8, 8, 3)
    edge[:, :, 4:] = 0.5
    same = model.execute(image=edge, amount=0.0)["image"]
    sharper = model.execute(image=edge, amount=1.0)["image"]
    assert isinstance(same, torch.Tensor)
    assert isinstance(sharper, torch.Tensor)
    assert torch.equal(same, edge)
    assert sharper[0, 0, 4, 0] > 0.5
    assert sharper[0, 0, 3, 0] == 0.0
    assert len((FOLDER / "custom_model.py").read_text("utf-8").split("class ")[1].splitlines()) < 31
