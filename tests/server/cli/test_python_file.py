"""Workflows in Python on the command line: run, register, plan; mistakes say file and line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import commands
from kit.cluster import ServerProcess
from kit.prompts import txt2img
from kit.workflow_server import EXAMPLES, HINT, flags, invoke, make_workflow_base
from nodeloom.graph_import.errors import InvocationRejected
from nodeloom.server.cli.python_file import trace_file
from nodeloom.server.cli.workflow_file import BadSetting
from nodeloom.server.embedded import NoWorkflow
from PIL import Image

TEXT_TO_IMAGE = EXAMPLES / "text_to_image.py"
SHARPEN = EXAMPLES / "custom_model.py"
SMALL = ("--set", "prompt=a loom", "--set", "steps=2", "--set", "size=64")


@pytest.fixture(scope="module")
def server(
    cli_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    base = make_workflow_base(tmp_path_factory.mktemp("python"), cli_checkpoint)
    with ServerProcess(base, executors=1, flags=flags(base)) as server:
        yield server


def test_a_file_is_run_with_values_for_its_inputs(server: ServerProcess, tmp_path: Path) -> None:
    done = commands.run("run", TEXT_TO_IMAGE, *SMALL, "--server", server.url, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    (picture,) = done.stdout.split()
    assert Path(picture).name.startswith("image_")
    with Image.open(picture) as image:
        assert image.size == (64, 64)
    assert "SamplerStep (text_to_image.py:" in done.stderr


def test_its_own_models_run_where_the_server_has_the_file(
    server: ServerProcess, cli_server: ServerProcess, tmp_path: Path
) -> None:
    command = ("run", SHARPEN, "--set", f"image={HINT}", "--output", tmp_path, "--server")
    done = commands.run(*command, server.url)
    assert done.returncode == 0, done.stderr
    shutil.copy(server.base / "input" / HINT, cli_server.base / "input")
    refused = commands.run(*command, cli_server.url)
    assert refused.returncode == 2
    lines = SHARPEN.read_text("utf-8").splitlines()
    line = lines.index("    return Sharpen(radius=1)(image, amount)") + 1
    assert f"{SHARPEN}:{line}: " in refused.stderr
    assert "--allow-user-models" in refused.stderr
    changed = tmp_path / "custom_model.py"
    changed.write_text(SHARPEN.read_text("utf-8") + "\n# mine\n", "utf-8")
    other = commands.run("run", changed, "--set", f"image={HINT}", "--server", server.url)
    assert other.returncode == 2
    assert "copy yours to the server's --workflow-directory" in other.stderr


def test_registering_takes_all_workflows_of_a_file_or_one(server: ServerProcess) -> None:
    chain = EXAMPLES / "image_chain.py"
    done = commands.run("register", chain, "--server", server.url)
    assert done.returncode == 0, done.stderr
    redraw, image_chain = done.stdout.splitlines()
    assert redraw.startswith("redraw, version 1: image IMAGE, prompt STRING, seed INT = 42,")
    assert image_chain.endswith("-> first, second")
    done = commands.run(
        "register",
        chain,
        "--workflow",
        "redraw",
        "--name",
        "again",
        "--server",
        server.url,
        "--json",
    )
    (answer,) = json.loads(done.stdout)
    assert (answer["name"], answer["workflow"]) == ("again", "redraw")
    told = invoke(server, "again", image=HINT, prompt="x", steps=1)
    assert told["workflow"] == "again"
    unclear = commands.run("register", chain, "--name", "both", "--server", server.url)
    assert unclear.returncode == 2
    assert "redraw, image_chain; name one with --workflow" in unclear.stderr


def test_a_file_that_the_server_has_otherwise_is_not_registered(
    server: ServerProcess, tmp_path: Path
) -> None:
    changed = tmp_path / "text_to_image.py"
    changed.write_text(TEXT_TO_IMAGE.read_text("utf-8") + "\n# mine\n", "utf-8")
    done = commands.run("register", changed, "--server", server.url)
    assert done.returncode == 2
    assert "is another file on the server" in done.stderr


def test_a_graph_is_registered_with_parameters(server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(txt2img(steps=1)))
    done = commands.run(
        *("register", path, "--name", "graph", "--server", server.url),
        *("--parameter", "prompt=6.text", "--output", "picture=9"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "graph, version 1: prompt STRING = 'a red cube' -> picture\n"
    assert invoke(server, "graph", prompt="x")["outputs"].keys() == {"picture"}
    for flag, words in (
        (("--parameter", "prompt=6.words"), "its inputs: text, clip"),
        (("--parameter", "prompt"), "must look like NAME=NODE.input"),
    ):
        done = commands.run("register", path, "--name", "graph", "--server", server.url, *flag)
        assert done.returncode == 2
        assert words in done.stderr
    assert "needs a --name" in commands.run("register", path).stderr


def test_no_server_is_another_status(tmp_path: Path) -> None:
    done = commands.run("register", TEXT_TO_IMAGE, "--server", "http://127.0.0.1:9")
    assert done.returncode == 1


def test_a_plan_needs_no_server(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODELOOM_DEMO_MODELS", "on")
    done = commands.run("plan", TEXT_TO_IMAGE, *SMALL, "--base-directory", server.base)
    assert done.returncode == 0, done.stderr
    assert "2 x denoise" in done.stdout
    done = commands.run(
        "plan", SHARPEN, "--set", f"image={HINT}", "--base-directory", server.base, "--json"
    )
    ops = [node["op"] for node in json.loads(done.stdout)["nodes"]]
    assert ops == ["load_image", "user_model", "save_image"]


@pytest.mark.parametrize("command", ["run", "plan", "register"])
def test_a_mistake_says_file_and_line(tmp_path: Path, command: str) -> None:
    path = tmp_path / "flow.py"
    path.write_text("from nodeloom import *\n\n@workflow\ndef f(x: list):\n    return x\n", "utf-8")
    done = commands.run(command, path)
    assert done.returncode == 2
    assert f"{path}:3: input 'x' is of type" in done.stderr


def test_a_value_that_the_files_refuse_says_input_and_line(server: ServerProcess) -> None:
    more = ("--set", "checkpoint=none.safetensors")
    for command in (
        ("run", TEXT_TO_IMAGE, *SMALL, *more, "--server", server.url),
        ("plan", TEXT_TO_IMAGE, *SMALL, *more, "--base-directory", server.base),
    ):
        done = commands.run(*command)
        assert done.returncode == 2
        assert f"{TEXT_TO_IMAGE}:30: checkpoint: Value not in list" in done.stderr


def test_texts_stay_texts_and_other_values_are_json(tmp_path: Path) -> None:
    settings = ("prompt=12", "steps=3", "cfg=2", "negative_prompt=")
    traced = trace_file(TEXT_TO_IMAGE, None, settings)
    texts = [n["inputs"]["text"] for n in traced.prompt.values() if "text" in n["inputs"]]
    assert texts == ["12", ""]
    cfgs = [n["inputs"]["cfg"] for n in traced.prompt.values() if "cfg" in n["inputs"]]
    assert cfgs == [2.0] * 3


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        (("prompt",), BadSetting, "NAME=value"),
        (("color=1",), BadSetting, "its inputs: prompt, negative_prompt"),
        (("prompt=x", "steps=many"), InvocationRejected, "steps: a whole number"),
        ((), InvocationRejected, "prompt: it is required"),
    ],
)
def test_a_bad_setting_is_named(
    settings: tuple[str, ...], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        trace_file(TEXT_TO_IMAGE, None, settings)


def test_a_file_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoWorkflow, match="No such file"):
        trace_file(tmp_path / "none.py", None, ())
    (tmp_path / "empty.py").touch()
    with pytest.raises(NoWorkflow, match="workflows in this file: none"):
        trace_file(tmp_path / "empty.py", None, ())
