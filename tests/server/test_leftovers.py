"""One server per state folder; what killed servers left is swept, what lives is not."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodeloom.runtime.errors import SettingsProblem
from nodeloom.server.leftovers import only_server, sweep_links

LONG_AGO_S = 1_000_000_000


@pytest.fixture
def parent() -> Iterator[Path]:
    """Not tmp_path: the address of a socket may have 107 bytes only."""
    with tempfile.TemporaryDirectory(prefix="sweep-") as name:
        yield Path(name)


def link_folder(parent: Path, name: str) -> tuple[Path, socket.socket]:
    folder = parent / name
    folder.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / "coordinator"))
    listener.listen()
    os.utime(folder, (LONG_AGO_S, LONG_AGO_S))
    return folder, listener


def test_a_second_server_is_told_who_has_the_folder(tmp_path: Path) -> None:
    with (
        only_server(tmp_path),
        pytest.raises(SettingsProblem, match=str(os.getpid())),
        only_server(tmp_path),
    ):
        pass


def test_the_lock_goes_with_its_holder(tmp_path: Path) -> None:
    for _ in range(2):
        with only_server(tmp_path):
            pass


def test_only_deserted_folders_are_swept(parent: Path) -> None:
    deserted, listener = link_folder(parent, "nodeloom-deserted")
    listener.close()
    alive, still_listening = link_folder(parent, "nodeloom-alive")
    young, listener = link_folder(parent, "nodeloom-young")
    listener.close()
    os.utime(young)
    elsewhere, listener = link_folder(parent, "elsewhere")
    listener.close()
    (parent / "nodeloom-link").symlink_to(elsewhere)
    plain = parent / "nodeloom-plain"
    plain.mkdir(mode=0o700)
    os.utime(plain, (LONG_AGO_S, LONG_AGO_S))
    with still_listening:
        sweep_links(parent)
    assert not deserted.exists()
    for kept in (alive, young, elsewhere, plain):
        assert kept.is_dir()
