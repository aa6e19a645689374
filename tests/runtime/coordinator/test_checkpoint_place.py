"""The run's checkpoint folder: in shared memory and locked, or else beside the sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodeloom.runtime.config import CHECKPOINTS_PREFIX
from nodeloom.runtime.coordinator import checkpoint_place
from nodeloom.runtime.coordinator.checkpoint_place import CheckpointPlace
from nodeloom.server.leftovers import sweep_checkpoints


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    """What stands for shared memory."""
    memory = tmp_path / "memory"
    memory.mkdir()
    return memory


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_the_folder_lies_in_shared_memory_and_is_for_us_alone(
    run_folder: Path, memory: Path
) -> None:
    first, second = CheckpointPlace(run_folder, memory), CheckpointPlace(run_folder, memory)
    assert {first.path, second.path} == set(memory.iterdir())
    assert all(path.name.startswith(CHECKPOINTS_PREFIX) for path in memory.iterdir())
    assert first.path.stat().st_mode & 0o777 == 0o700
    first.folder.write("e.i.1", memoryview(b"x"))
    first.close()
    assert list(memory.iterdir()) == [second.path]
    second.close()
    assert list(run_folder.iterdir()) == []


def test_without_shared_memory_the_folder_lies_in_the_runs_own(
    run_folder: Path, tmp_path: Path
) -> None:
    place = CheckpointPlace(run_folder, tmp_path / "none")
    assert place.path == run_folder / "checkpoints"
    assert place.path.stat().st_mode & 0o777 == 0o700
    place.close()
    assert list(run_folder.iterdir()) == []


def test_shared_memory_that_is_nearly_full_is_left_to_others(
    run_folder: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_place, "MIN_FREE_BYTES", 2**60)
    place = CheckpointPlace(run_folder, memory)
    assert place.path.parent == run_folder
    assert list(memory.iterdir()) == []
    place.close()


def test_only_folders_whose_server_is_gone_are_swept(
    run_folder: Path, memory: Path, tmp_path: Path
) -> None:
    place = CheckpointPlace(run_folder, memory)
    left = memory / f"{CHECKPOINTS_PREFIX}left"
    left.mkdir(mode=0o700)
    (left / "e.i.1").write_bytes(b"x")
    open_to_all = memory / f"{CHECKPOINTS_PREFIX}open"
    open_to_all.mkdir(mode=0o755)
    others = memory / "others"
    others.mkdir(mode=0o700)
    (memory / f"{CHECKPOINTS_PREFIX}link").symlink_to(others)
    (memory / f"{CHECKPOINTS_PREFIX}file").touch()
    before = set(memory.iterdir())
    sweep_checkpoints(memory)
    assert set(memory.iterdir()) == before - {left}
    place.close()
    sweep_checkpoints(tmp_path / "none")
