"""Models of users' own: a class in a Python file with known content, behind a wrapper of ours.

The text is found by the file's path and the hash of its bytes in the folder where the server keeps
what its owner lets run, so an accepted request goes on with the text that it was accepted with.
Whatever the text does wrong fails the node that called it and says the line; only what ends the
process goes further.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch

from ...graph_import.dsl.source import run_source
from ...graph_import.dsl.user_code import kept_name
from ...graph_import.errors import ModelFileProblem, NodeloomError
from ...graph_import.handles import ModelRef, UserClass
from ...graph_import.model import Check, Model, no_check
from ..errors import Cancelled, InputsLost, NodeFailed, OutOfMemory
from .user_values import given, taken
from .weight_files import problem

MAX_SOURCE_BYTES: Final = 1 << 20
MAX_MODULES: Final = 64  # texts that stay loaded
MAX_CAUSES: Final = 32  # exceptions looked at in a chain of them

_modules: OrderedDict[str, None] = OrderedDict()


class UserModel(Model):
    """A model of a user's own as everything else sees it.

    Args: folder: where the files lie that may run; None: none may.
    """

    def __init__(self, ref: ModelRef, folder: Path | None) -> None:
        if ref.key.user_class is None:
            raise ModelFileProblem(f"{ref.key.label()}: no class of a user's own is named")
        self._class: UserClass = ref.key.user_class
        self._folder = folder
        self._path = ref.key.file.path
        self._device = "cpu"
        self._own: Model | None = None
        self._num_bytes = ref.key.file.size_bytes
        super().__init__(ref)

    def setup_io(self) -> None:
        self.inputs = list(self._class.inputs)
        self.outputs = list(self._class.outputs)

    def load(self, device: str, check: Check = no_check) -> None:
        """Run the file, make the class, have it load.

        Raises: ModelFileProblem: such files may not run here, or it is gone. CompositionError: the
        text raised. NodeFailed: there is no such class, or `setup_io` or `load` raised.
        """
        data = self._source()
        check()
        with self._blamed():
            own = _class_in(_module(data, self._path), self._class)(self.ref)
        if (tuple(own.inputs), tuple(own.outputs)) != (self._class.inputs, self._class.outputs):
            reason = "setup_io declares other inputs or outputs than the workflow was made with"
            raise NodeFailed(f"{self._label}: {reason}")
        with self._blamed():
            takes_check = len(inspect.signature(own.load).parameters) > 1
            own.load(device, check) if takes_check else own.load(device)
            own_bytes = own.num_bytes if type(own).num_bytes is not Model.num_bytes else 0
        self._num_bytes = max(int(own_bytes), held_bytes(vars(own)), len(data))
        self._device = device
        self._own = own

    def execute(self, **inputs: object) -> Mapping[str, object]:
        return self.execute_batch([inputs])[0]

    def execute_batch(self, calls: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Raises: NodeFailed: it raised, or gave something else than it declares."""
        if self._own is None:
            raise NodeFailed(f"{self._label} is not loaded")
        with self._blamed():
            prepared = [given(self.inputs, call, self._device) for call in calls]
            results: Any = self._own.execute_batch(prepared)
        if not isinstance(results, list) or len(results) != len(calls):
            raise NodeFailed(f"{self._label}: execute_batch must give a list, a result per call")
        return [taken(self._label, self.outputs, result) for result in results]

    @property
    def num_bytes(self) -> int:
        """What `load` left in the object's attributes, or more if the class says so."""
        return self._num_bytes

    @property
    def _label(self) -> str:
        return f"{Path(self._path).name}, {self._class.name}"

    def _source(self) -> bytes:
        """The file's bytes. Raises: ModelFileProblem."""
        if self._folder is None:
            raise problem(self._path, "this executor runs no models of users' own")
        name = kept_name(self._path, self._class.sha256)
        if name is None:
            raise problem(self._path, "its hash is none")
        try:
            with (self._folder / name).open("rb") as file:
                data = file.read(MAX_SOURCE_BYTES + 1)
        except OSError as error:
            raise problem(self._path, f"its text can't be read: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != self._class.sha256:
            raise problem(self._path, "its text is not the one that the request was accepted with")
        return data

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """What the user's text raises inside is its own fault, unless it only passes ours on.

        Raises: NodeFailed: with the line in its message and the user's frames in its traceback.
        """
        try:
            yield
        except (Exception, SystemExit, KeyboardInterrupt) as raised:
            if isinstance(raised, NodeloomError):
                raise
            if (ours := _ours_behind(raised)) is not None:
                raise ours from raised
            message = f"{self._place(raised)}: {type(raised).__name__}: {raised}"
            is_memory = isinstance(raised, MemoryError | torch.OutOfMemoryError)
            kind = OutOfMemory if is_memory else NodeFailed
            raise kind(message, file=self._path).with_traceback(raised.__traceback__) from raised

    def _place(self, raised: BaseException) -> str:
        frames = traceback.extract_tb(raised.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == self._path]
        name = Path(self._path).name
        return f"{name}:{lines[-1]}" if lines else f"{name}, {self._class.name}"


def held_bytes(value: object, depth: int = 3) -> int:
    """Bytes of the tensors and modules in a value; containers are looked into `depth` deep."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, torch.nn.Module):
        return sum(tensor.nbytes for tensor in (*value.parameters(), *value.buffers()))
    if depth and isinstance(value, Mapping):
        return sum(held_bytes(part, depth - 1) for part in value.values())
    if depth and isinstance(value, list | tuple | set):
        return sum(held_bytes(part, depth - 1) for part in value)
    return 0


def _module(data: bytes, path: str) -> ModuleType:
    """The text as a module, once; the least recently used ones go."""
    module = run_source(data, Path(path).name, path)
    _modules[module.__name__] = None
    _modules.move_to_end(module.__name__)
    while len(_modules) > MAX_MODULES:
        sys.modules.pop(_modules.popitem(last=False)[0], None)
    return module


def _class_in(module: ModuleType, wanted: UserClass) -> type[Model]:
    """Raises: NodeFailed: the file defines no such model."""
    found = getattr(module, wanted.name, None)
    if not isinstance(found, type) or not issubclass(found, Model):
        raise NodeFailed(f"{module.__file__} defines no model {wanted.name!r}")
    if found.__module__ != module.__name__:
        raise NodeFailed(f"{module.__file__} does not define {wanted.name!r}, it imports it")
    return found


def _ours_behind(raised: BaseException) -> NodeloomError | None:
    """What a deferred input raised, if the user's text raised something else because of it."""
    behind: BaseException | None = raised
    for _ in range(MAX_CAUSES):
        if behind is None or isinstance(behind, InputsLost | Cancelled):
            break
        behind = behind.__cause__ or behind.__context__
    return behind if isinstance(behind, InputsLost | Cancelled) else None
