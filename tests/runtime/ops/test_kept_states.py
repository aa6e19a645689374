"""States on disk: found by similarity, bounded, least recently used out first, never unpickled."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from nodeloom.graph_import.sampling.base import SamplerState
from nodeloom.runtime.ops import kept_states
from nodeloom.runtime.ops.kept_states import KeptStates

KEY, OTHER = "a" * 64, "b" * 64
ROOM = 10**6


def embedding(angle: float) -> torch.Tensor:
    return torch.tensor([torch.tensor(angle).cos(), torch.tensor(angle).sin()])


def state(value: float, size: int = 8) -> SamplerState:
    x = torch.full((1, 4, size, size), value)
    return SamplerState(x=x, history=(x + 1, x + 2))


def keep(states: KeptStates, angle: float, *, key: str = KEY, room: int = ROOM) -> bool:
    return states.keep(key, embedding(angle), state(angle), room)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.safetensors"))


def aged(folder: Path, seconds_s: float) -> None:
    """As if all that is there now had been used for the last time so long ago."""
    for path in files(folder):
        then = path.stat().st_mtime - seconds_s
        os.utime(path, (then, then))


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    states = KeptStates(tmp_path / "kept")
    first = SamplerState(x=torch.randn(1, 4, 8, 8), x_eval=torch.randn(1, 4, 8, 8))
    assert states.keep(KEY, embedding(0.0), first, ROOM)
    entry = states.find(KEY, embedding(0.0), 1.0)
    assert entry is not None
    found = states.load(entry)
    assert found is not None
    assert found.x_eval is not None
    assert torch.equal(found.x, first.x)
    assert torch.equal(found.x_eval, first.x_eval)
    assert found.history == ()


def test_the_most_similar_text_is_found(tmp_path: Path) -> None:
    states = KeptStates(tmp_path)
    for angle in (0.0, 0.3, 1.0):
        assert keep(states, angle)
    entry = states.find(KEY, embedding(0.4), 0.9)
    assert entry is not None
    found = states.load(entry)
    assert found is not None
    assert torch.equal(found.x, state(0.3).x)
    assert [float(item.mean()) for item in found.history] == pytest.approx([1.3, 2.3])


def test_nothing_similar_enough_and_no_other_key_is_found(tmp_path: Path) -> None:
    states = KeptStates(tmp_path)
    assert keep(states, 0.0)
    assert states.find(KEY, embedding(0.5), 0.9) is None
    assert states.find(OTHER, embedding(0.0), 0.0) is None
    assert states.find(KEY, torch.ones(3), 0.0) is None  # of another encoder's width


def test_the_files_never_hold_more_than_allowed(tmp_path: Path) -> None:
    states = KeptStates(tmp_path)
    keep(states, 0.0)
    size = files(tmp_path)[0].stat().st_size
    for number in range(1, 8):
        aged(tmp_path, 2 * kept_states.FRESH_S)
        assert keep(states, 0.1 * number, key=KEY if number % 2 else OTHER, room=3 * size)
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 3 * size
    assert len(files(tmp_path)) == 3
    assert not keep(states, 2.0, room=size - 1)


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    states = KeptStates(tmp_path)
    for angle in (0.0, 1.0, 2.0):
        aged(tmp_path, 2 * kept_states.FRESH_S)
        keep(states, angle)
    aged(tmp_path, 2 * kept_states.FRESH_S)
    assert states.find(KEY, embedding(0.0), 0.99) is not None  # the oldest, and used just now
    room = 3 * files(tmp_path)[0].stat().st_size
    assert keep(states, 3.0, room=room)
    assert states.find(KEY, embedding(1.0), 0.99) is None
    assert all(states.find(KEY, embedding(angle), 0.99) for angle in (0.0, 2.0, 3.0))


def test_what_was_used_a_moment_ago_is_not_deleted_for_another(tmp_path: Path) -> None:
    states = KeptStates(tmp_path)
    keep(states, 0.0)
    size = files(tmp_path)[0].stat().st_size
    assert not keep(states, 1.0, room=size)
    assert states.find(KEY, embedding(0.0), 0.99) is not None


def test_a_key_has_a_limited_number_of_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_states, "MAX_PER_KEY", 2)
    states = KeptStates(tmp_path)
    keep(states, 0.5, key=OTHER)
    for angle in (0.0, 1.0, 2.0):
        aged(tmp_path, 2 * kept_states.FRESH_S)
        assert keep(states, angle)
    assert len(list((tmp_path / KEY).iterdir())) == 2
    assert states.find(OTHER, embedding(0.5), 0.99) is not None


def test_keeping_the_same_twice_is_one_file(tmp_path: Path) -> None:
    states = KeptStates(tmp_path)
    assert keep(states, 0.0)
    aged(tmp_path, 100.0)
    assert keep(states, 0.0)
    (path,) = files(tmp_path)
    assert path.stat().st_mtime > time.time() - 50.0


@pytest.mark.parametrize("damage", [b"", b"\x80\x04}."])
def test_a_damaged_file_is_not_found_and_is_deleted_when_asked_for(
    tmp_path: Path, damage: bytes
) -> None:
    states = KeptStates(tmp_path)
    keep(states, 0.0)
    entry = states.find(KEY, embedding(0.0), 0.99)
    assert entry is not None
    files(tmp_path)[0].write_bytes(damage)
    assert states.find(KEY, embedding(0.0), 0.99) is None
    assert states.load(entry) is None
    assert files(tmp_path) == []


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("damage", [b"", b"\x80\x04}."])
def test_a_damaged_file_makes_room_for_the_same_state(
    tmp_path: Path, damage: bytes, is_known: bool
) -> None:
    states = KeptStates(tmp_path)
    assert keep(states, 0.7)
    if is_known:
        assert states.find(KEY, embedding(0.7), 0.99) is not None
    files(tmp_path)[0].write_bytes(damage)
    assert keep(states, 0.7)
    assert states.find(KEY, embedding(0.7), 0.99) is not None


def test_a_file_that_no_process_has_read_yet_is_deleted_if_it_is_damaged(tmp_path: Path) -> None:
    states = KeptStates(tmp_path)
    assert keep(states, 0.9)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(b"")
    assert states.find(KEY, embedding(0.9), 0.99) is None
    assert files(tmp_path) == []
    path.write_bytes(whole)  # by another executor, under the same name
    assert states.find(KEY, embedding(0.9), 0.99) is not None


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    assert not keep(KeptStates(tmp_path / "kept"), 0.0)


@pytest.mark.parametrize("entry", ["../x", f"{KEY}/../../x", f"{KEY}/", "", f"{KEY}\n/{KEY}"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        KeptStates(tmp_path).load(entry)
