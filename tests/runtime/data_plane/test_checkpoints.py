"""Files of tensors: had when their maker is gone, never trusted, deleted by their maker."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from kit.tensor_peer import TensorPeer, make_tensor
from nodeloom.runtime.data_plane import checkpoints
from nodeloom.runtime.data_plane.checkpoints import (
    CheckpointFolder,
    OwnCheckpoints,
    file_name,
    own_checkpoints,
)
from nodeloom.runtime.data_plane.local import LocalPlane
from nodeloom.runtime.data_plane.routes import ExecutorPlane
from nodeloom.runtime.data_plane.zmq import PeerUnreachable
from nodeloom.runtime.errors import InputsLost
from nodeloom.runtime.ids import ExecutorId, TensorId
from nodeloom.runtime.protocol import TensorKey, TensorRef

BIG = [50, 200]  # 40,000 bytes of float32


@pytest.fixture
def own(tmp_path: Path) -> OwnCheckpoints:
    return OwnCheckpoints(CheckpointFolder(tmp_path))


@pytest.fixture
def plane(own: OwnCheckpoints) -> LocalPlane:
    return LocalPlane(ExecutorId("e"), "i", "ipc://none", "cpu", own)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def key(tensor_id: int, incarnation: str = "i") -> TensorKey:
    return TensorKey(
        executor=ExecutorId("e"), incarnation=incarnation, tensor_id=TensorId(tensor_id)
    )


def test_a_checkpointed_tensor_is_had_when_its_maker_is_dead(
    tmp_path: Path, folder: Path, reader: ExecutorPlane
) -> None:
    peer = TensorPeer(tmp_path, "mortal", checkpoints=folder)
    ref = peer.put("bfloat16", [7, 3000], seed=5)
    peer.kill()
    tensor = reader.get(ref)
    expected = make_tensor("bfloat16", [7, 3000], 5)
    assert torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8))
    assert ref.checkpoint is not None
    (folder / ref.checkpoint).unlink()
    assert reader.get(ref) is tensor  # kept, and no file's memory
    assert torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def replace_by_a_link(path: Path) -> None:
    elsewhere = path.parent.parent / "secret"
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)


def replace_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "harm",
    [Path.unlink, cut, lengthen, replace_by_a_link, replace_by_a_pipe, replace_by_a_folder],
)
def test_a_file_that_is_not_as_it_was_is_not_used(
    harm: Callable[[Path], None],
    tmp_path: Path,
    folder: Path,
    reader: ExecutorPlane,
    consumer: ExecutorPlane,
) -> None:
    peer = TensorPeer(tmp_path, f"harmed-{harm.__name__}", checkpoints=folder)
    ref = peer.put("float32", BIG, seed=1)
    assert ref.checkpoint is not None
    harm(folder / ref.checkpoint)
    with pytest.raises(InputsLost, match="nothing can be fetched"):
        reader.get(ref)
    looks_too = ExecutorPlane(
        LocalPlane(ExecutorId("l"), "l", "ipc://none", "cpu", own_checkpoints(folder)),
        consumer._fetcher,
    )
    assert torch.equal(
        looks_too.get(ref).view(torch.uint8), make_tensor("float32", BIG, 1).view(torch.uint8)
    )
    peer.kill()
    looks_too.release([ref.key])
    with pytest.raises(PeerUnreachable):
        looks_too.get(ref)


@pytest.mark.parametrize(
    "name", ["../e.i.1", "/etc/passwd", "e.i.1/", "e.i.1\n", "..", "", "e.i.", "a" * 300, "e.i.2"]
)
def test_only_the_tensors_own_file_is_read(
    name: str, tmp_path: Path, own: OwnCheckpoints, plane: LocalPlane
) -> None:
    ref = plane.put(torch.zeros(BIG), is_checkpointed=True)
    plane.put(torch.ones(BIG), is_checkpointed=True)
    assert files(tmp_path) == ["e.i.1", "e.i.2"]
    assert plane.from_checkpoint(ref) is not None
    assert plane.from_checkpoint(msgspec.structs.replace(ref, checkpoint=name)) is None


def test_a_ref_of_a_size_that_no_file_has_costs_no_memory(plane: LocalPlane) -> None:
    ref = plane.put(torch.zeros(BIG), is_checkpointed=True)
    for shape, dtype in (((2**40,), "float32"), ((50, 100), "float32"), ((-1,), "int8"), ((), "x")):
        assert plane.from_checkpoint(msgspec.structs.replace(ref, shape=shape, dtype=dtype)) is None


def test_files_are_written_only_where_that_is_asked_and_only_of_what_is_not_inline(
    tmp_path: Path, plane: LocalPlane
) -> None:
    assert plane.put(torch.zeros(BIG)).checkpoint is None
    assert plane.put(torch.zeros(8), is_checkpointed=True).checkpoint is None
    assert plane.put(torch.zeros(BIG), is_checkpointed=True).checkpoint == "e.i.3"
    assert files(tmp_path) == ["e.i.3"]
    assert (tmp_path / "e.i.3").stat().st_mode & 0o777 == 0o600


def test_its_maker_deletes_a_file_with_its_tensor_and_others_do_not(
    tmp_path: Path, plane: LocalPlane
) -> None:
    other = LocalPlane(ExecutorId("o"), "o", "ipc://none", "cpu", own_checkpoints(tmp_path))
    ref = plane.put(torch.zeros(BIG), is_checkpointed=True)
    copy = other.from_checkpoint(ref)
    assert copy is not None
    other.keep(ref.key, copy)
    other.release([ref.key])
    assert files(tmp_path) == ["e.i.1"]
    plane.release([ref.key, ref.key, key(99)])
    assert files(tmp_path) == []


def put_one(plane: LocalPlane) -> TensorRef:
    ref = plane.put(torch.full(BIG, 3.0), is_checkpointed=True)
    assert plane.get(ref).sum() == 30_000  # with or without a file
    return ref


def complaints(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.message == "not_checkpointed" for record in caplog.records)


def test_a_full_or_forbidden_folder_fails_no_put_and_is_told_once(
    tmp_path: Path,
    plane: LocalPlane,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(file: int, data: memoryview) -> int:
        written = os_write(file, data[:1000])
        if not written or os.fstat(file).st_size > 1000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written

    os_write = os.write
    monkeypatch.setattr(checkpoints.os, "write", refuse)
    with caplog.at_level(logging.WARNING):
        assert put_one(plane).checkpoint is None
        assert put_one(plane).checkpoint is None
    assert complaints(caplog) == 1
    assert files(tmp_path) == []  # nothing half-written either
    monkeypatch.undo()
    assert put_one(plane).checkpoint is not None


def test_a_folder_that_was_removed_fails_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    plane = LocalPlane(ExecutorId("e"), "i", "ipc://none", "cpu", own_checkpoints(folder))
    before = put_one(plane)
    (folder / "e.i.1").unlink()
    folder.rmdir()
    assert put_one(plane).checkpoint is None
    plane.release([before.key])
    assert own_checkpoints(folder) is None
    assert own_checkpoints(None) is None


def test_room_is_left_in_the_file_system(
    tmp_path: Path, plane: LocalPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointFolder, "left_bytes", lambda self: 40_000)
    assert put_one(plane).checkpoint is not None
    monkeypatch.setattr(CheckpointFolder, "left_bytes", lambda self: 39_999)
    assert put_one(plane).checkpoint is None


def test_an_executor_has_a_budget_that_releases_give_back(
    plane: LocalPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "MAX_OWN_BYTES", 100_000)
    first, second, third = put_one(plane), put_one(plane), put_one(plane)
    assert (second.checkpoint, third.checkpoint) == ("e.i.2", None)
    plane.release([first.key])
    assert put_one(plane).checkpoint == "e.i.4"


def test_a_quarter_of_the_file_system_is_left_or_what_is_enough(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    about = os.statvfs(tmp_path)
    free, total = about.f_bavail * about.f_frsize, about.f_blocks * about.f_frsize
    spare = min(total // 4, checkpoints.MAX_SPARE_BYTES)
    assert folder.left_bytes() == pytest.approx(free - spare, abs=2**26)


def test_a_dead_incarnations_files_are_swept_and_no_others(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    names = [file_name(key(n, incarnation)) for n in (1, 2) for incarnation in ("i", "i1", "j")]
    for name in names:
        folder.write(name, memoryview(b"x"))
    (tmp_path / "e.i.note").touch()
    folder.sweep(ExecutorId("e"), "i", ["e.i.2"])
    assert files(tmp_path) == sorted({*names, "e.i.note"} - {"e.i.1"})
    folder.remove(["e.i.2", "e.i.2", "../x", "e.i.77"])
    assert "e.i.2" not in files(tmp_path)


def test_a_tensor_whose_maker_has_an_odd_name_has_no_file(tmp_path: Path) -> None:
    plane = LocalPlane(ExecutorId("../e"), "i", "ipc://none", "cpu", own_checkpoints(tmp_path))
    assert put_one(plane).checkpoint is None
    assert files(tmp_path) == []
