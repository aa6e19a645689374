"""`nodeloom run` against a real server: pictures, refusals, failures, interruptions, a restart."""

from __future__ import annotations

import io
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

from kit import commands
from kit.base_directory import make_base
from kit.cluster import ServerProcess
from kit.prompts import txt2img
from nodeloom.graph_import.workflow_file import NodeTable
from nodeloom.server.cli.workflow_file import read_workflow
from PIL import Image

LONG_STEPS = 400
LIMIT_S = 120


def write(folder: Path, prompt: dict[str, Any]) -> Path:
    path = folder / "workflow.json"
    path.write_text(json.dumps(prompt))
    return path


def picture_size(path: str) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def await_empty_queue(server: ServerProcess) -> None:
    """Read the queue until nothing is in it."""
    deadline = time.monotonic() + LIMIT_S
    while server.get("/prompt")["exec_info"]["queue_remaining"]:
        assert time.monotonic() < deadline, "the request is still in the queue"


def test_the_picture_is_downloaded_and_its_path_printed(
    cli_server: ServerProcess, tmp_path: Path
) -> None:
    path = write(tmp_path, txt2img(seed=1, steps=3))
    out = tmp_path / "out"
    done = commands.run("run", path, "--server", cli_server.url, "--output", out)
    assert done.returncode == 0, done.stderr
    [picture] = done.stdout.split()
    assert Path(picture).parent == out
    assert picture_size(picture) == (64, 64)
    assert "KSampler #3" in done.stderr
    assert "100% done" in done.stderr


def test_a_picture_is_a_workflow_again_and_inputs_can_be_set(
    cli_server: ServerProcess, tmp_path: Path
) -> None:
    path = write(tmp_path, txt2img(seed=2, steps=2))
    first = commands.run("run", path, "--server", cli_server.url, "--output", tmp_path)
    picture = Path(first.stdout.strip())
    settings = ("--set", "3.seed=99", "--set", "9.filename_prefix=sub/again")
    target = ("--server", cli_server.url, "--output", tmp_path)
    done = commands.run("run", picture, *settings, *target, "--json")
    outcome = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    [again] = outcome["pictures"]
    assert Path(again).parent == tmp_path / "sub"
    assert read_workflow(Path(again), lambda: NodeTable({})).prompt["3"]["inputs"]["seed"] == 99
    assert Path(again).read_bytes() != picture.read_bytes()
    assert cli_server.get(f"/history/{outcome['prompt_id']}")


def test_a_refused_workflow_gives_every_problem_and_status_2(
    cli_server: ServerProcess, tmp_path: Path
) -> None:
    prompt = txt2img(sampler="nope", checkpoint="missing.safetensors")
    done = commands.run("run", write(tmp_path, prompt), "--server", cli_server.url)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "node 3 (KSampler), sampler_name: Value not in list" in done.stderr
    assert "node 4 (CheckpointLoaderSimple), ckpt_name: Value not in list" in done.stderr


def test_a_setting_that_names_nothing_gives_status_2_without_a_server(tmp_path: Path) -> None:
    done = commands.run("run", write(tmp_path, txt2img()), "--set", "3.sed=1")
    assert done.returncode == 2
    assert "KSampler #3 has no input 'sed'; its inputs: seed, steps" in done.stderr


def test_a_failed_run_names_node_type_and_message(
    cli_server: ServerProcess, tmp_path: Path
) -> None:
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(whole, "png")
    (cli_server.base / "input" / "cut.png").write_bytes(whole.getvalue()[:300])
    prompt = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "cut.png"}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    }
    done = commands.run("run", write(tmp_path, prompt), "--server", cli_server.url)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "LoadImage #1: " in done.stderr
    assert "cut.png" in done.stderr


def test_no_server_is_said_with_its_address(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: nothing else can take it
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        done = commands.run("run", write(tmp_path, txt2img()), "--server", address)
    assert done.returncode == 1
    assert f"no server at http://{address}" in done.stderr


def test_ctrl_c_stops_the_run_on_the_server_too(cli_server: ServerProcess, tmp_path: Path) -> None:
    path = write(tmp_path, txt2img(seed=3, steps=LONG_STEPS, size=128))
    with commands.start("run", path, "--server", cli_server.url) as process:
        commands.read_until(process, "KSampler", of_stderr=True)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "the server was told to stop" in told
    await_empty_queue(cli_server)
    entry = next(iter(cli_server.get("/history?max_items=1").values()))
    names = [name for name, _ in entry["status"]["messages"]]
    assert "execution_interrupted" in names


def test_a_run_beyond_its_timeout_is_stopped(cli_server: ServerProcess, tmp_path: Path) -> None:
    path = write(tmp_path, txt2img(seed=4, steps=LONG_STEPS))
    done = commands.run("run", path, "--server", cli_server.url, "--timeout", "1.5")
    assert done.returncode == 1
    assert "not done after 1.5 s" in done.stderr
    await_empty_queue(cli_server)


def test_a_run_survives_the_death_and_restart_of_the_server(
    cli_checkpoint: Path, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = make_base(tmp_path / "base", cli_checkpoint)
    server = ServerProcess(base, flags=("--threads", "1", "--port", str(port)))
    path = write(tmp_path, txt2img(seed=5, steps=60))
    out = tmp_path / "out"
    with (
        server,
        commands.start("run", path, "--server", server.url, "--output", out) as process,
    ):
        commands.read_until(process, "step", of_stderr=True)
        server.kill()
        server.log.clear()
        server.start()
        printed, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, told
    assert picture_size(printed.strip()) == (64, 64)
