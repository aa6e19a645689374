"""`nodeloom doctor`: a healthy machine, and the ways in which one can be broken."""

from __future__ import annotations

import argparse
import json
import socket
from pathlib import Path

import pytest
from kit import commands
from kit.base_directory import make_base, make_checkpoint
from kit.prompts import TINY
from nodeloom.runtime.config import Settings, read_settings
from nodeloom.server.catalog import FolderCatalog
from nodeloom.server.cli.health_checks import (
    Verdict,
    check_checkpoints,
    check_folders,
    check_gpus,
    check_port,
)
from nodeloom.server.files import Folders
from nodeloom.server.model_paths import ModelPaths


def settings_of(base: Path) -> Settings:
    return read_settings(argparse.Namespace(base_directory=str(base)), {})


def test_a_working_installation_is_ready_to_serve(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", make_checkpoint(tmp_path))
    done = commands.run("doctor", "--json", "--base-directory", base)
    report = json.loads(done.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert done.returncode == 0, done.stdout
    assert report["is_healthy"]
    assert "torch" in checks["packages"]["detail"]
    assert f"{TINY}: sd15" in checks["checkpoint"]["detail"]
    assert checks["torch loads"]["verdict"] == "good"


def test_a_broken_thing_gives_a_status_that_scripts_see(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folders = ("--base-directory", tmp_path, "--output-directory", tmp_path / "file")
    done = commands.run("doctor", *folders)
    assert done.returncode == 1
    assert f"BROKEN  folder output  {tmp_path / 'file'} is no folder" in done.stdout


def test_unusable_checkpoints_are_listed_with_the_reason(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", make_checkpoint(tmp_path))
    checkpoints = base / "models" / "checkpoints"
    (checkpoints / "cut.safetensors").write_bytes((checkpoints / TINY).read_bytes()[:5000])
    (checkpoints / "old.ckpt").write_bytes(b"PK\x03\x04 pickled")
    settings = settings_of(base)
    catalog = FolderCatalog(ModelPaths.of(settings), Folders.of(settings))
    found = {check.detail.split(":")[0]: check for check in check_checkpoints(catalog)}
    assert found[TINY].verdict is Verdict.GOOD
    assert found["cut.safetensors"].verdict is Verdict.NOTE
    assert found["old.ckpt"].verdict is Verdict.NOTE
    assert len(found["old.ckpt"].detail) > len("old.ckpt: ")


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "can't be listened on" in check_port("127.0.0.1", port).detail
    assert check_port("127.0.0.1", 0).verdict is Verdict.GOOD


def test_folders_that_are_not_there_yet_are_fine(tmp_path: Path) -> None:
    checks = list(check_folders(settings_of(tmp_path / "new" / "base")))
    assert [check.verdict for check in checks] == [Verdict.GOOD] * 5
    assert all("will be made" in check.detail for check in checks)
    assert not (tmp_path / "new").exists()


def test_cuda_that_was_asked_for_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi in it
    assert check_gpus("auto").verdict is Verdict.NOTE
    assert check_gpus("cuda").verdict is Verdict.BROKEN
