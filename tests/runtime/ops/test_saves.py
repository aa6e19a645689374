"""Each picture is saved once, whoever is killed, retried or at it twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest
from nodeloom.graph_import.ir import NodeId
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.ops.save_names import NamePattern
from nodeloom.runtime.ops.saves import Ledger, Save, forget_request, save_once

from . import saving_process
from .saving_process import content, never

PATTERN = NamePattern(subfolder="deep", stem="x")
NUM_REQUESTS = 60
NUM_PICTURES = 3


def make_save(base: Path, request: str = "a") -> Save:
    return Save(
        request_id=RequestId(request),
        node_id=NodeId("9"),
        root=base / "root",
        saves=base / "saves",
        check_cancelled=never,
    )


def encoders(count: int) -> list[partial[bytes]]:
    return [partial(content, 0, index) for index in range(count)]


def files(base: Path) -> dict[str, bytes]:
    folder = base / "root" / "deep"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_each_once(base: Path, num_requests: int = NUM_REQUESTS) -> None:
    """Every picture is there once and whole, and nothing else is."""
    wanted = Counter(content(r, i) for r in range(num_requests) for i in range(NUM_PICTURES))
    assert Counter(files(base).values()) == wanted
    assert all(name.endswith("_.png") for name in files(base))


def start(base: Path) -> subprocess.Popen[str]:
    arguments = [str(base / "root"), str(base / "saves"), str(NUM_REQUESTS), str(NUM_PICTURES)]
    return subprocess.Popen(
        [sys.executable, saving_process.__file__, *arguments], stdout=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=120)
    assert process.returncode == 0


def kill_somewhere(process: subprocess.Popen[str], num_saved: int, delay_s: float) -> bool:
    """Kill the process a moment after its n-th save; whether it was still at work."""
    assert process.stdout is not None
    for _ in range(num_saved):
        if not process.stdout.readline():
            break
    until = time.perf_counter() + delay_s
    while time.perf_counter() < until:
        pass  # shorter than any sleep: the kill must fall anywhere between two system calls
    process.kill()
    process.communicate(timeout=60)
    return process.returncode == -signal.SIGKILL


def test_pictures_survive_kills_at_any_point_once_each(tmp_path: Path) -> None:
    chance = random.Random(0)
    num_killed = 0
    for attempt in range(25):
        # A retry passes over what is done, so later attempts get further.
        killed = kill_somewhere(start(tmp_path), attempt + 1, chance.random() * 0.02)
        num_killed += killed
    assert num_killed >= 5, "the processes end before they are killed: give them more to do"
    finish(start(tmp_path))
    assert_each_once(tmp_path)


def test_two_processes_with_the_same_requests_save_each_once(tmp_path: Path) -> None:
    pair = [start(tmp_path), start(tmp_path)]
    for process in pair:
        finish(process)
    assert_each_once(tmp_path)


def test_a_save_that_was_visible_but_not_noted_is_found_again(tmp_path: Path) -> None:
    save = make_save(tmp_path)
    _, names = save_once(save, PATTERN, encoders(2))
    folder = tmp_path / "root" / "deep"
    # As a kill between link and ledger leaves it.
    os.link(folder / names[1], save.temp_path(folder, 1))
    ledger = Ledger(subfolder="deep", stem="x", published=names[:1], chosen=names[1])
    save.ledger_path.write_bytes(msgspec.json.encode(ledger))
    assert save_once(save, PATTERN, encoders(2)) == ("deep", names)
    assert set(files(tmp_path)) == set(names)


def test_a_torn_file_is_written_anew(tmp_path: Path) -> None:
    save = make_save(tmp_path)
    folder = tmp_path / "root" / "deep"
    folder.mkdir(parents=True)
    save.temp_path(folder, 0).write_bytes(content(0, 0)[:100])
    assert save_once(save, PATTERN, encoders(1)) == ("deep", ("x_00001_.png",))
    assert files(tmp_path) == {"x_00001_.png": content(0, 0)}


def test_a_name_that_another_took_meanwhile_is_left_alone(tmp_path: Path) -> None:
    save = make_save(tmp_path)
    save.ledger_path.parent.mkdir(parents=True)
    ledger = Ledger(subfolder="deep", stem="x", chosen="x_00001_.png")
    save.ledger_path.write_bytes(msgspec.json.encode(ledger))
    folder = tmp_path / "root" / "deep"
    folder.mkdir(parents=True)
    (folder / "x_00001_.png").write_bytes(b"another's")
    assert save_once(save, PATTERN, encoders(1)) == ("deep", ("x_00002_.png",))
    assert files(tmp_path) == {"x_00001_.png": b"another's", "x_00002_.png": content(0, 0)}


def test_a_finished_save_is_not_encoded_again(tmp_path: Path) -> None:
    first = save_once(make_save(tmp_path), PATTERN, encoders(2))

    def refuse() -> bytes:
        raise AssertionError("encoded again")

    later = NamePattern(subfolder="elsewhere", stem="y")  # the hour in the prefix has changed
    assert save_once(make_save(tmp_path), later, [refuse, refuse]) == first


def test_requests_do_not_share_ledgers(tmp_path: Path) -> None:
    save_once(make_save(tmp_path, "a"), PATTERN, encoders(1))
    save_once(make_save(tmp_path, "b"), PATTERN, encoders(1))
    assert set(files(tmp_path)) == {"x_00001_.png", "x_00002_.png"}
    forget_request(tmp_path / "saves", RequestId("a"))
    assert not make_save(tmp_path, "a").ledger_path.parent.exists()
    assert make_save(tmp_path, "b").ledger_path.exists()
    forget_request(tmp_path / "saves", RequestId("never seen"))


def test_a_failed_save_leaves_nothing_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(NodeFailed, match="too long"):
        save_once(make_save(tmp_path), NamePattern(subfolder="deep", stem="x" * 250), encoders(1))
    assert files(tmp_path) == {}


def test_a_folder_that_is_no_folder_is_an_error_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "saves").touch()
    with pytest.raises(NodeFailed, match="can't be saved: "):
        save_once(make_save(tmp_path), PATTERN, encoders(1))
