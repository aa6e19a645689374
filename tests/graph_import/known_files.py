"""A catalog of files that exist only in a test: the seam that lowering asks the world through."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodeloom.graph_import.catalog import CheckpointInfo
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import FileIdentity, Role

CHECKPOINT = "dream.safetensors"
PICTURE = "cat.png"


def identity(name: str, mtime_ns: int = 1) -> FileIdentity:
    return FileIdentity(path=f"/files/{name}", size_bytes=100, mtime_ns=mtime_ns)


def sd15(name: str, roles: frozenset[Role] = frozenset(Role)) -> CheckpointInfo:
    return CheckpointInfo(file=identity(name), family="sd15", roles=roles, dtype="float16")


@dataclass
class KnownFiles:
    """Checkpoints by name (or the reason why one can't be used) and pictures by name."""

    checkpoints: dict[str, CheckpointInfo | str] = field(
        default_factory=lambda: {CHECKPOINT: sd15(CHECKPOINT)}
    )
    pictures: dict[str, FileIdentity] = field(default_factory=lambda: {PICTURE: identity(PICTURE)})
    num_listings: int = 0

    def choices(self, kind: str) -> tuple[str, ...]:
        self.num_listings += 1
        return tuple(sorted(self.checkpoints if kind == "checkpoints" else self.pictures))

    def checkpoint(self, name: str) -> CheckpointInfo:
        found = self.checkpoints.get(name, "there is no such checkpoint")
        if isinstance(found, str):
            raise ModelFileProblem(found, name=name)
        return found

    def picture(self, name: str) -> FileIdentity:
        bare = name.removesuffix(" [input]")
        if bare not in self.pictures:
            raise ModelFileProblem(f"there is no picture called {name!r}", name=name)
        return self.pictures[bare]


class NoFiles(KnownFiles):
    """A server without any model or picture."""

    def __init__(self) -> None:
        super().__init__(checkpoints={}, pictures={})
