"""`nodeloom plan` as a person calls it: a process, no server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit import commands
from kit.base_directory import make_base, make_checkpoint
from kit.loras import write_lora
from kit.prompts import TINY, txt2img


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    return make_base(folder / "base", make_checkpoint(folder))


def plan(base: Path, prompt: dict[str, Any], *flags: str) -> subprocess.CompletedProcess[str]:
    path = base / "workflow.json"
    path.write_text(json.dumps(prompt))
    return commands.run("plan", path, "--base-directory", base, *flags)


def test_the_lowered_graph_is_told_with_loads_and_batches(base: Path) -> None:
    done = plan(base, txt2img(steps=4), "--json")
    report = json.loads(done.stdout)
    ops = [node["op"] for node in report["nodes"]]
    assert done.returncode == 0
    assert ops.count("denoise") == 4
    assert report["num_nodes"] == len(ops) == 11
    assert report["num_members"] == 7
    [load] = report["loads"]
    assert load["num_bytes"] == (base / "models" / "checkpoints" / TINY).stat().st_size
    assert len(load["models"]) == 3
    batches = {batch["op"]: batch for batch in report["batches"]}
    assert batches["text_encode"]["num_at_once"] == 2
    assert len(batches["denoise"]["nodes"]) == 4
    assert batches["denoise"]["num_at_once"] == 1


def test_people_read_nodes_edges_and_models(base: Path) -> None:
    done = plan(base, txt2img(steps=2), "--set", "3.steps=3")
    assert done.returncode == 0
    assert "7 ComfyUI nodes, lowered to 10 DAG nodes" in done.stdout
    (step,) = (line for line in done.stdout.splitlines() if "3/eval-1  denoise" in line)
    assert f"[sd15/denoiser:{TINY}]" in step
    assert "state <- 3/eval-0" in step
    assert "CheckpointLoaderSimple #4: nothing to run" in done.stdout


def test_a_value_from_another_node_leaves_the_sampler_pending(base: Path) -> None:
    prompt = txt2img()
    prompt["10"] = {"class_type": "EmptyImage", "inputs": {}}
    prompt["10"]["inputs"] = {"width": 16, "height": 16, "batch_size": 1, "color": 0}
    prompt["11"] = {"class_type": "GetImageSize", "inputs": {"image": ["10", 0]}}
    prompt["3"]["inputs"]["steps"] = ["11", 0]
    report = json.loads(plan(base, prompt, "--json").stdout)
    pending = {item["node_id"]: item for item in report["pending"]}
    assert "11" in pending["3"]["waits_for"]


def test_every_problem_is_named_and_the_status_is_2(base: Path) -> None:
    prompt = txt2img(sampler="nope", checkpoint="missing.safetensors")
    prompt["5"]["inputs"]["width"] = "wide"
    done = plan(base, prompt)
    assert done.returncode == 2
    assert done.stdout == ""
    for words in ("KSampler #3, sampler_name", "CheckpointLoaderSimple #4, ckpt_name"):
        assert words in done.stderr
    assert "EmptyLatentImage #5, width: Failed to convert" in done.stderr


def test_torch_is_not_imported(base: Path) -> None:
    path = base / "w.json"
    path.write_text(json.dumps(txt2img()))
    program = (
        "import sys\nfrom nodeloom.server.cli.plan import main\n"
        f"status = main([{str(path)!r}, '--base-directory', {str(base)!r}])\n"
        "assert 'torch' not in sys.modules\nsys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=commands.LIMIT_S
    )
    assert done.returncode == 0, done.stderr


def test_a_lora_is_a_node_that_the_users_of_the_patched_models_wait_for(base: Path) -> None:
    write_lora(base / "models" / "loras" / "style.safetensors")
    prompt = txt2img(steps=1)
    prompt["10"] = {
        "class_type": "LoraLoader",
        "inputs": {
            "model": ["4", 0],
            "clip": ["4", 1],
            "lora_name": "style.safetensors",
            "strength_model": 0.8,
            "strength_clip": 0.0,
        },
    }
    prompt["3"]["inputs"]["model"] = ["10", 0]
    prompt["6"]["inputs"]["clip"] = ["10", 1]
    text = plan(base, prompt).stdout
    assert "LoraLoader #10\n    depth  0  10  patch_fetch" in text
    assert f"denoise  [sd15/denoiser:{TINY} + style.safetensors@0.8]" in text
    assert "patch_0 <- 10" in text
    assert f"text_encode  [sd15/text_encoder:{TINY}]" in text
    assert "style.safetensors: 0.1 MB, for patch" in text
