"""Saving exactly once per (request, node, picture), whatever dies in between.

A ledger per (request, node) says which names were published and which one was about to be. A
picture is written whole under a hidden name, its final name is noted in the ledger, then a hard
link makes it visible: exclusive and atomic. A retry, perhaps in another process, finds in the
ledger what is done, or that the noted name is the very file that was written (same inode), and goes
on from there. So a save that was killed is either visible and noted, or not visible.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from ...graph_import.ir import NodeId
from ..errors import NodeFailed
from ..ids import RequestId
from .save_names import NamePattern, make_folder

LOCK_TIMEOUT_S: Final = 30.0
LOCK_POLL_S: Final = 0.02


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """How far a save came: the names of the first pictures, and the name for the next one."""

    subfolder: str
    stem: str
    suffix: str = ".png"
    published: tuple[str, ...] = ()
    chosen: str | None = None


@dataclass(slots=True, frozen=True)
class Save:
    """One node's save: who asks, where to, and where the ledgers lie."""

    request_id: RequestId
    node_id: NodeId
    root: Path
    saves: Path
    check_cancelled: Callable[[], None]

    @property
    def ledger_path(self) -> Path:
        """The ledger; its folder is the request's own."""
        return _request_folder(self.saves, self.request_id) / f"{_digest(self.node_id)}.json"

    def temp_path(self, folder: Path, index: int) -> Path:
        """The hidden name that picture `index` is written under, the same in every retry."""
        return folder / f".{_digest(f'{self.request_id}/{self.node_id}/{index}')}.part"


def save_once(
    save: Save, pattern: NamePattern, encoders: Sequence[Callable[[], bytes]]
) -> tuple[str, tuple[str, ...]]:
    """Publish one file per encoder; what an earlier attempt published is not encoded again.

    Args:
        pattern: where to; an earlier attempt's pattern wins, its clock may have said otherwise.
        encoders: give the bytes of each picture, in order.
    Returns: the subfolder and the file names. Raises: NodeFailed: outside the root, no space.
    """
    try:
        save.ledger_path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(save):
            ledger = _read_ledger(save.ledger_path)
            if ledger is None:
                ledger = Ledger(
                    subfolder=pattern.subfolder, stem=pattern.stem, suffix=pattern.suffix
                )
            folder = make_folder(save.root, ledger.subfolder)
            for index in range(len(ledger.published)):
                save.temp_path(folder, index).unlink(missing_ok=True)
            for index in range(len(ledger.published), len(encoders)):
                save.check_cancelled()
                ledger = _publish(save, ledger, folder, encoders[index])
    except OSError as error:
        raise NodeFailed(f"a picture can't be saved: {error.strerror or error}") from error
    return ledger.subfolder, ledger.published


def forget_request(saves: Path, request_id: RequestId) -> None:
    """Drop the ledgers of a request that has ended and will not be retried."""
    shutil.rmtree(_request_folder(saves, request_id), ignore_errors=True)


def forget_others(saves: Path, request_ids: Iterable[RequestId]) -> None:
    """Drop the ledgers of all requests but these; for the start, when nothing runs."""
    kept = {_request_folder(saves, request_id) for request_id in request_ids}
    if saves.is_dir():
        for folder in saves.iterdir():
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _publish(save: Save, ledger: Ledger, folder: Path, encode: Callable[[], bytes]) -> Ledger:
    """Publish the next picture; returns the ledger that says so."""
    index = len(ledger.published)
    temp = save.temp_path(folder, index)
    if ledger.chosen is None or not _is_same_file(temp, folder / ledger.chosen):
        _write_new(temp, encode(), is_durable=True)
        try:
            ledger = _link(save, ledger, folder, temp)
        except (OSError, NodeFailed):
            temp.unlink()
            raise
    names = (*ledger.published, str(ledger.chosen))
    ledger = msgspec.structs.replace(ledger, published=names, chosen=None)
    _write_ledger(save.ledger_path, ledger)
    temp.unlink()
    return ledger


def _link(save: Save, ledger: Ledger, folder: Path, temp: Path) -> Ledger:
    """Give `temp` the first free name, noted in the ledger before it is taken."""
    pattern = NamePattern(subfolder=ledger.subfolder, stem=ledger.stem, suffix=ledger.suffix)
    number = pattern.next_number(folder)
    while True:
        name = pattern.name(len(ledger.published), number)
        ledger = msgspec.structs.replace(ledger, chosen=name)
        _write_ledger(save.ledger_path, ledger)
        try:
            os.link(temp, folder / name)
        except FileExistsError:
            number += 1  # another save was faster
        else:
            return ledger


def _is_same_file(temp: Path, final: Path) -> bool:
    try:
        return os.path.samestat(temp.lstat(), final.lstat())
    except FileNotFoundError:
        return False


def _write_new(path: Path, content: bytes, *, is_durable: bool) -> None:
    """Write a file that wasn't there; a torn one of an earlier attempt goes first."""
    path.unlink(missing_ok=True)
    try:
        with open(path, "xb") as stream:
            stream.write(content)
            if is_durable:
                stream.flush()
                os.fsync(stream.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _read_ledger(path: Path) -> Ledger | None:
    """The ledger of an earlier attempt, None where there is none.

    Killing a process never tears a ledger. The power's failing can, for the sake of 20 ms that
    flushing would cost each picture; a picture may then be saved a second time.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Ledger)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _write_ledger(path: Path, ledger: Ledger) -> None:
    unfinished = path.with_suffix(".part")
    _write_new(unfinished, msgspec.json.encode(ledger), is_durable=False)
    os.replace(unfinished, path)


@contextlib.contextmanager
def _locked(save: Save) -> Iterator[None]:
    """Hold the save against a second attempt; a process that dies lets go of it.

    Raises: NodeFailed: another process has held it for LOCK_TIMEOUT_S.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with open(save.ledger_path.with_suffix(".lock"), "ab") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                save.check_cancelled()
                if time.monotonic() > deadline:
                    raise NodeFailed("another executor is still saving this picture") from None
                time.sleep(LOCK_POLL_S)
        yield


def _request_folder(saves: Path, request_id: RequestId) -> Path:
    return saves / _digest(request_id)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:40]
