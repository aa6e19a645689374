"""The command line: dispatch, and how `serve` refuses what it can't do."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from nodeloom.server.cli import COMMANDS, main


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n  {command} " in shown


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dance"]) == 2
    assert "dance" in capsys.readouterr().err
    assert main([]) == 2


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nodeloom 0.")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--port", "many"], "--port"),
        (["--preview-method", "magic"], "preview_method"),
        (["--extra-model-paths-config", "/nosuch.yaml"], "/nosuch.yaml"),
        (["--temp-directory", "/"], "temp_directory"),
        (["--listen", "203.0.113.1"], "203.0.113.1"),
        (["--allow-user-models"], "needs workflow_directory"),
        (["--workflow-directory", "/nosuch"], "is no folder"),
        (["--workflow-directory", "/"], "overlap"),
    ],
)
def test_serve_refuses_settings_that_make_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], why: str
) -> None:
    assert main(["serve", "--base-directory", str(tmp_path / "base"), *flags]) == 2
    assert why in capsys.readouterr().err


def test_serve_says_that_its_port_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--base-directory", str(tmp_path), "--port", port]) == 2
    assert port in capsys.readouterr().err


def test_serve_says_that_its_database_is_none_and_leaves_no_folder_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    state = tmp_path / "user" / "nodeloom"
    state.mkdir(parents=True)
    (state / "nodeloom.db").write_text("no database" * 100)
    assert main(["serve", "--base-directory", str(tmp_path), "--port", "0"]) == 2
    assert "not a database" in capsys.readouterr().err
    assert not list(tmp_path.glob("nodeloom-*"))


def test_the_server_does_not_load_torch() -> None:
    code = "import sys, nodeloom.server.cli.serve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
