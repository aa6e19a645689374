"""Models of users' own as nodes: how a model object says which class of which file it is."""

from __future__ import annotations

import hashlib
import re
import sys
from typing import Final

from ..errors import CompositionError, Fault, Place
from ..model import Model
from ..nodes.user_model import Declaration
from .arguments import type_of_constant, unstorable
from .source import SOURCE, ModuleSource

SHA256: Final = re.compile(r"[0-9a-f]{64}")


def declaration_of(model: Model, place: Place) -> Declaration:
    """What a prompt must say of `model` so that an executor can make it.

    Raises: CompositionError: its class is not at the top of a file that was loaded as a workflow's
        (`source.run_source`), or its settings, inputs or outputs can't be written down.
    """
    cls = type(model)
    source = getattr(sys.modules.get(cls.__module__), SOURCE, None)
    if not isinstance(source, ModuleSource):
        message = (
            f"{cls.__name__} is defined in {cls.__module__}, where executors can't find it; define "
            "it in the workflow's own file, and load that file as a workflow"
        )
        raise CompositionError(message, Fault.BAD_MODEL, place)
    if cls.__qualname__ != cls.__name__:
        message = f"{cls.__qualname__} must stand at the top of its file"
        raise CompositionError(message, Fault.BAD_MODEL, place)
    if model.patches:
        message = f"{cls.__name__} takes no LoRA: denoisers and text encoders do"
        raise CompositionError(message, Fault.BAD_MODEL, place)
    for name, value in model.settings.items():
        if value is not None and type_of_constant(value) is None:
            message = f"{cls.__name__}: setting {name!r} must be a number, text, bool or None"
            received = type(value).__name__
            raise CompositionError(message, Fault.WRONG_TYPE, place, received=received)
        if reason := unstorable(value):
            message = f"{cls.__name__}: setting {name!r}: {reason}"
            raise CompositionError(message, Fault.WRONG_VALUE, place)
    declaration = Declaration(
        file=source.file,
        name=cls.__name__,
        sha256=source.sha256,
        settings=tuple(sorted(model.settings.items())),
        inputs=tuple(model.inputs),
        outputs=tuple(model.outputs),
    )
    if reason := declaration.fault():
        raise CompositionError(f"{cls.__name__}: {reason}", Fault.BAD_MODEL, place)
    return declaration


def kept_name(path: str, sha256: str) -> str | None:
    """The name of the copy that executors run of the file at `path`, with this content.

    Of a file that is gone nobody finds a copy by another file's name. None: this is no hash.
    """
    if SHA256.fullmatch(sha256) is None:
        return None
    named = f"{path}\0{sha256}".encode("utf-8", "surrogateescape")
    return f"{hashlib.sha256(named).hexdigest()}.py"
