"""States of sampling runs on disk, found by the similarity of their texts.

A folder for each key (whatever must be equal) has a safetensors file for each state, named by the
hash of what it holds. So a name always means the same state, and executors need no lock to read.
Which files stay is decided when one is added: the least recently used ones go, but never one that
was used a moment ago, for a request may be about to read it.

Nothing here is needed for a request to succeed: what can't be read is not found, what can't be
written is left out.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import safetensors.torch
import torch
from safetensors import SafetensorError

from ...graph_import.sampling.base import SamplerState

log = logging.getLogger(__name__)

DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
SUFFIX: Final = ".safetensors"
MAX_PER_KEY: Final = 1024
MAX_HISTORY: Final = 8  # tensors that a sampler remembers
FRESH_S: Final = 60.0  # what was used within this time is not deleted
ROUNDING: Final = 1e-5  # a text may be this far from itself
EMBEDDING: Final = "embedding"


@dataclass(slots=True, frozen=True)
class _File:
    """A file and when it was last used."""

    path: Path
    size_bytes: int
    used_s: float

    @property
    def key(self) -> str:
        return self.path.parent.name


class KeptStates:
    """The states below one folder, which is made when the first one is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str, embedding: torch.Tensor, similarity: float) -> str | None:
        """The entry under `key` whose text is most similar, if it is similar enough.

        Args: embedding: float32 [width], of length 1. Among equals the first name counts.
        """
        found: list[tuple[float, str]] = []
        for path in self._files(key):
            known = _embedding(path)
            if known is not None and known.shape == embedding.shape:
                found.append((-float(known @ embedding), _entry(path)))
        for distance, entry in sorted(found):
            if -distance < similarity - ROUNDING:
                break
            if self.load(entry) is not None:
                return entry
        return None

    def load(self, entry: str) -> SamplerState | None:
        """The state that an entry stands for, now used; None: it is not there, or damaged."""
        path = self._path(entry)
        try:
            os.utime(path)
            state = _state(_read(path))
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, KeyError) as problem:
            _drop(path, problem)
            return None
        return state

    def keep(self, key: str, embedding: torch.Tensor, state: SamplerState, max_bytes: int) -> bool:
        """Add a state; whether it is there now. Files never take more than `max_bytes`."""
        data = safetensors.torch.save(_tensors(state) | {EMBEDDING: embedding.contiguous()})
        path = self._path(f"{_digest(key)}/{hashlib.sha256(data).hexdigest()}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(self._folder):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                if _size(path) == len(data):
                    os.utime(path)
                    return True
                path.unlink(missing_ok=True)  # of another size it is damaged
                if not self._make_room(key, len(data), max_bytes):
                    return False
                part = path.with_suffix(".part")
                part.write_bytes(data)
                part.replace(path)
                return True
        except OSError as problem:
            log.warning("state_not_kept", extra={"reason": str(problem)})
            return False

    def _make_room(self, key: str, wanted_bytes: int, max_bytes: int) -> bool:
        """Delete the least recently used files until there is room; False: there can't be."""
        held = sorted(self._all(), key=lambda file: file.used_s)
        held_bytes = sum(file.size_bytes for file in held)
        num_of_key = sum(file.key == key for file in held)
        for file in held:
            is_full = held_bytes + wanted_bytes > max_bytes
            if not is_full and num_of_key < MAX_PER_KEY:
                break
            if file.used_s > time.time() - FRESH_S:
                return False
            if is_full or file.key == key:
                file.path.unlink(missing_ok=True)
                held_bytes -= file.size_bytes
                num_of_key -= file.key == key
                if file.key != key:
                    with suppress(OSError):  # others lie there
                        file.path.parent.rmdir()
        return held_bytes + wanted_bytes <= max_bytes and num_of_key < MAX_PER_KEY

    def _all(self) -> Iterator[_File]:
        """Every file, half-written ones of dead executors included."""
        for folder in os.scandir(self._folder):
            if folder.is_dir(follow_symlinks=False):
                for file in os.scandir(folder.path):
                    about = file.stat(follow_symlinks=False)
                    yield _File(Path(file.path), about.st_size, about.st_mtime)

    def _files(self, key: str) -> list[Path]:
        folder = self._folder / _digest(key)
        try:
            return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
        except FileNotFoundError:
            return []

    def _path(self, entry: str) -> Path:
        key, _, name = entry.partition("/")
        return self._folder / _digest(key) / f"{_digest(name)}{SUFFIX}"


def _entry(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _digest(text: str) -> str:
    """The text itself. Raises: ValueError: it is none that names a file here."""
    if DIGEST.fullmatch(text) is None:
        raise ValueError(f"not the name of a kept state: {text!r}")
    return text


@lru_cache(maxsize=4 * MAX_PER_KEY)
def _read_embedding(path: Path) -> torch.Tensor:
    """The text's embedding in a file. A name says what is in it, so it is read once.

    Raises: OSError, SafetensorError, KeyError; then the next call reads again.
    """
    return _read(path)[EMBEDDING].clone()


def _embedding(path: Path) -> torch.Tensor | None:
    """The text's embedding in a file; None: it is gone, or damaged and now deleted."""
    try:
        return _read_embedding(path)
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, KeyError) as problem:
        _drop(path, problem)
        return None


def _drop(path: Path, problem: Exception) -> None:
    """Delete a file that can't be used, so that it can be kept anew."""
    log.warning("kept_state_unusable", extra={"entry": _entry(path), "reason": str(problem)})
    with suppress(OSError):
        path.unlink()


def _size(path: Path) -> int | None:
    """The file's size in bytes; None: there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _read(path: Path) -> dict[str, torch.Tensor]:
    """A file's tensors, read and not mapped: one that is cut meanwhile must not end the process."""
    return safetensors.torch.load(path.read_bytes())


def _tensors(state: SamplerState) -> dict[str, torch.Tensor]:
    tensors = {f"history_{index}": item for index, item in enumerate(state.history)}
    if state.x_eval is not None:
        tensors["x_eval"] = state.x_eval
    if state.scalars:
        tensors["scalars"] = torch.tensor(state.scalars, dtype=torch.float64)
    return {name: item.contiguous() for name, item in {"x": state.x, **tensors}.items()}


def _state(tensors: Mapping[str, torch.Tensor]) -> SamplerState:
    """Raises: KeyError: they are no state."""
    names = (f"history_{index}" for index in range(MAX_HISTORY))
    history = tuple(tensors[name] for name in names if name in tensors)
    scalars = tensors["scalars"].tolist() if "scalars" in tensors else ()
    return SamplerState(
        x=tensors["x"], x_eval=tensors.get("x_eval"), history=history, scalars=tuple(scalars)
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One executor at a time adds and deletes; the system unlocks for one that dies."""
    with open(folder / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
