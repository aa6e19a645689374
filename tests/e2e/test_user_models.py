"""Models of users' own on a real server: change of the file, every kind of failure, opt-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.cluster import ServerProcess
from kit.prompts import TINY
from kit.workflow_server import (
    HINT,
    flags,
    invoke,
    invoked,
    make_workflow_base,
    pixels,
    register,
)

MODEL = """
import os, sys
from nodeloom import *

class Paint(Model):
    def setup_io(self):
        self.add_input("image", "IMAGE")
        self.add_input("level", float)
        self.add_output("image", "IMAGE")

    def load(self, device, check=None):
        {load}

    def execute(self, **inputs):
        image = inputs["image"]
        {execute}
        return {{"image": image}}

@workflow(name="{name}")
def paint(image: Image, level: float = 0.5):
    return Paint(name="{name}")(image, level)
"""


def write(server: ServerProcess, name: str, execute: str = "pass", load: str = "pass") -> None:
    text = MODEL.format(name=name, execute=execute, load=load)
    (server.base / "flows" / f"{name}.py").write_text(text, "utf-8")


def line_of(server: ServerProcess, name: str, part: str) -> int:
    lines = (server.base / "flows" / f"{name}.py").read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if part in line)


def failed(server: ServerProcess, name: str, **inputs: object) -> dict[str, Any]:
    """The error that a run ends with."""
    told = invoked(server, name, inputs={"image": HINT, **inputs}, wait=True)
    assert told["status"] == "error", told
    error: dict[str, Any] = told["error"]
    return error


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    base = make_workflow_base(tmp_path_factory.mktemp("models"), checkpoint)
    with ServerProcess(base, executors=2, flags=flags(base)) as server:
        yield server


def test_another_text_is_another_model_and_old_versions_keep_theirs(server: ServerProcess) -> None:
    write(server, "fill", "image.fill_(inputs['level'])")  # in place: its own copy
    register(server, "fill", file="fill.py")
    half = pixels(server, invoke(server, "fill", image=HINT), "image")
    assert np.unique(half).tolist() == [127]
    write(server, "fill", "image = image * 0 + 1.0")
    told = invoked(server, "fill", inputs={"image": HINT}, wait=True)
    assert np.array_equal(pixels(server, told, "image"), half)  # not registered: not used
    assert register(server, "fill", file="fill.py")["version"] == 2
    white = pixels(server, invoke(server, "fill", image=HINT), "image")
    assert np.unique(white).tolist() == [255]
    server.post("/free", {"unload_models": True})
    told = invoked(server, "fill", inputs={"image": HINT, "level": 0.25}, version=1, wait=True)
    assert np.unique(pixels(server, told, "image")).tolist() == [63]


@pytest.mark.parametrize(
    ("name", "where", "text", "words"),
    [
        ("raises", "execute", "raise ValueError('no paint')", "ValueError: no paint"),
        ("unloadable", "load", "raise OSError('no weights')", "OSError: no weights"),
        ("exits", "execute", "sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_a_failure_is_its_own_requests_and_names_the_line(
    server: ServerProcess, name: str, where: str, text: str, words: str
) -> None:
    write(server, name, **{where: text})
    register(server, name, file=f"{name}.py")
    before = {executor["pid"] for executor in server.executors()}
    error = failed(server, name)
    line = line_of(server, name, text)
    assert error["exception_message"].strip() == f"{name}.py:{line}: {words}"
    assert error["node_type"].startswith("nodeloom.UserModel.Paint.")
    assert any(f'{name}.py", line {line}, in {where}' in frame for frame in error["traceback"])
    assert {executor["pid"] for executor in server.executors()} == before


def test_outputs_of_another_type_are_refused(server: ServerProcess) -> None:
    write(server, "flat", "image = image[0]")
    register(server, "flat", file="flat.py")
    message = failed(server, "flat")["exception_message"]
    assert "output 'image' must be pictures" in message
    assert "[64, 64, 3]" in message


def test_a_model_that_kills_its_process_fails_its_request_alone(server: ServerProcess) -> None:
    write(server, "crash", "os._exit(9)")
    register(server, "crash", file="crash.py")
    error = failed(server, "crash")
    assert "2 executors died" in error["exception_message"]
    server.wait_for(lambda: len(server.executors()) == 2, "new executors")
    told = invoked(server, "crash", inputs={"image": HINT, "level": 0.0}, prompt_id="again")
    write(server, "fine", "image = 1 - image")
    register(server, "fine", file="fine.py")
    assert invoke(server, "fine", image=HINT)["status"] == "success"
    where = f"/nodeloom/requests/{told['prompt_id']}"
    server.wait_for(lambda: server.get(where)["status"] == "error", "the second crash's end")


def test_a_prompt_may_name_a_model_only_as_the_file_has_it(server: ServerProcess) -> None:
    write(server, "plain")
    register(server, "plain", file="plain.py")
    told = invoke(server, "plain", image=HINT)
    prompt = server.get(f"/history/{told['prompt_id']}")[told["prompt_id"]]["prompt"][2]
    assert server.post("/prompt", {"prompt": prompt})[0] == 200
    (server.base / "flows" / "plain.py").unlink()
    status, refused = server.post("/prompt", {"prompt": prompt})
    assert status == 400
    assert "there is no file 'plain.py'" in str(refused["node_errors"])
    status, refused = server.post("/nodeloom/workflows/plain/invoke", {"inputs": {"image": HINT}})
    assert (status, refused["error"]["type"]) == (400, "invocation_rejected")


DEFERRED = """
from nodeloom import *

class Late(Model):
    def setup_io(self):
        self.add_input("image", "IMAGE")
        self.add_input("late", "IMAGE", deferred=True)
        self.add_input("factor", float, deferred=True)
        self.add_output("image", "IMAGE")
        self.add_output("mean", float)

    def load(self, device, check=None):
        pass

    def execute(self, **inputs):
        image = inputs["image"] * 0
        late = inputs["late"]() * inputs["factor"]()
        return {"image": image + late, "mean": float(late.mean())}

@workflow
def late(image: Image, prompt: str, rounds: int = 2):
    text_encoder, vae = TextEncoder("TINY"), Vae("TINY")
    denoiser, step = Denoiser("TINY"), SamplerStep()
    positive, negative = text_encoder(prompt), text_encoder("")
    latents = LatentsGenerator(denoiser)(1, 3, width=64, height=64)
    for _ in range(3):
        latents = step(denoiser(latents, positive, negative), latents)
    drawn = vae.decode(latents)
    model, factor = Late(), 1.0
    for _ in range(rounds):
        drawn, mean = model(image, drawn, factor)
        factor = mean
    return {"drawn": vae.decode(latents), "late": drawn}
"""


def test_deferred_inputs_come_from_whatever_makes_them(server: ServerProcess) -> None:
    text = DEFERRED.replace("TINY", TINY)
    (server.base / "flows" / "late.py").write_text(text, "utf-8")
    register(server, "late", file="late.py")
    told = invoke(server, "late", image=HINT, prompt="late", rounds=1)
    assert np.array_equal(pixels(server, told, "late"), pixels(server, told, "drawn"))
    twice = invoke(server, "late", image=HINT, prompt="late", rounds=2)
    drawn = pixels(server, twice, "drawn").astype(float)
    expected = drawn * drawn.mean() / 255
    assert np.abs(pixels(server, twice, "late") - expected).max() <= 2
