"""Python text to a module: workflow files, and the files of models of users' own.

The text comes as bytes; which files may be run at all is the business of who reads them. Running a
file runs its code: nothing here makes foreign text harmless.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import re
import sys
import traceback
from pathlib import PurePath
from types import ModuleType
from typing import Final

import msgspec

from ..errors import CompositionError, Fault, Place

FAILURES: Final = (Exception, SystemExit)  # what a text may raise that concerns nobody else
SOURCE: Final = "__nodeloom_source__"  # the attribute of a module with its ModuleSource


class ModuleSource(msgspec.Struct, frozen=True, kw_only=True):
    """What a module was made from.

    Args:
        file: the name under which executors find the file, below the folder of users' code.
        sha256: of its bytes, hex digits.
    """

    file: str
    sha256: str


class _BytesLoader(importlib.abc.ExecutionLoader):
    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self._path = path

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._data)

    def get_filename(self, fullname: str) -> str:
        return self._path

    def is_package(self, fullname: str) -> bool:
        return False


def run_source(data: bytes, file: str, path: str | None = None) -> ModuleType:
    """The module that a Python text makes; equal bytes under an equal name give one module.

    Args:
        file: the name of the file below the folder of users' code.
        path: what tracebacks and errors call it; `file` if None.
    Raises: CompositionError: the text is no Python, or raised something else when it ran.
    """
    shown = file if path is None else path
    source = ModuleSource(file=file, sha256=hashlib.sha256(data).hexdigest())
    digest = hashlib.sha256(f"{file}\n{shown}\n{source.sha256}".encode()).hexdigest()[:16]
    stem = re.sub(r"\W", "_", PurePath(file).stem)
    name = f"nodeloom_user_code_{stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _BytesLoader(data, shown)
    spec = importlib.util.spec_from_loader(name, loader, origin=shown)
    if spec is None:
        raise ImportError(f"{shown} can't be loaded")
    module = importlib.util.module_from_spec(spec)
    module.__file__ = shown
    setattr(module, SOURCE, source)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException as problem:
        del sys.modules[name]
        if isinstance(problem, CompositionError) or not isinstance(problem, FAILURES):
            raise
        raise failure(problem, shown) from problem
    return module


def failure(problem: BaseException, file: str) -> CompositionError:
    """An exception that a workflow's text raised, at the innermost line of `file` in its trace."""
    if isinstance(problem, SyntaxError):
        place = Place(file=file, line=problem.lineno or 1)
        return CompositionError(f"this is no Python: {problem.msg}", Fault.FAILED, place)
    frames = traceback.extract_tb(problem.__traceback__)
    lines = [frame.lineno or 1 for frame in frames if frame.filename == file]
    place = Place(file=file, line=lines[-1] if lines else 1)
    return CompositionError(f"{type(problem).__name__}: {problem}", Fault.FAILED, place)
