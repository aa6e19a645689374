"""What validation and lowering must ask of the world; `server/catalog.py` answers from folders."""

from __future__ import annotations

from typing import Protocol

import msgspec

from .handles import FileIdentity, Role


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint file is, read from its header alone.

    `encoders` are the text encoders in it by name, such as `clip_l`. A file of text encoders alone
    has the family of whichever loader names it; `family` is then the first one that has them.
    """

    file: FileIdentity
    family: str
    roles: frozenset[Role]
    dtype: str
    encoders: tuple[str, ...] = ()


class Catalog(Protocol):
    """The files that a workflow may name."""

    def choices(self, kind: str) -> tuple[str, ...]:
        """Relative names that a combo offers; kind is `checkpoints` ... or `input` (pictures)."""
        ...

    def checkpoint(self, name: str) -> CheckpointInfo:
        """Raises: ModelFileProblem: missing, truncated, needs unpickling, of no known family."""
        ...

    def part(self, kind: str, name: str) -> CheckpointInfo:
        """A file that holds one model: kind is `vae`, `text_encoders`, `controlnet` ...

        Raises: ModelFileProblem, as `checkpoint`.
        """
        ...

    def file(self, kind: str, name: str) -> FileIdentity:
        """A file that needs no inspection here: `loras`, `embeddings`, `user_models`.

        Of `user_models` (Python files whose classes executors may run) names are below the folder
        that the server's owner allows; KeyError: none is. Raises: ModelFileProblem.
        """
        ...

    def picture(self, name: str) -> FileIdentity:
        """A picture by its (possibly annotated) name. Raises: ModelFileProblem."""
        ...
