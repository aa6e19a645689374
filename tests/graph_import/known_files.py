"""A catalog of files that exist only in a test: the seam that lowering asks the world through."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodeloom.graph_import.catalog import CheckpointInfo
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import FileIdentity, Role

CHECKPOINT = "dream.safetensors"
PICTURE = "cat.png"
SD15_ROLES = frozenset({Role.DENOISER, Role.TEXT_ENCODER, Role.VAE})  # of a checkpoint


def identity(name: str, mtime_ns: int = 1) -> FileIdentity:
    return FileIdentity(path=f"/files/{name}", size_bytes=100, mtime_ns=mtime_ns)


def sd15(name: str, roles: frozenset[Role] = SD15_ROLES) -> CheckpointInfo:
    encoders = ("clip_l",) if Role.TEXT_ENCODER in roles else ()
    return CheckpointInfo(
        file=identity(name), family="sd15", roles=roles, dtype="float16", encoders=encoders
    )


@dataclass
class KnownFiles:
    """Checkpoints by name (or the reason why one can't be used), pictures by name.

    `parts` (models of their own, or reasons) and `files` are by kind and name.
    """

    checkpoints: dict[str, CheckpointInfo | str] = field(
        default_factory=lambda: {CHECKPOINT: sd15(CHECKPOINT)}
    )
    pictures: dict[str, FileIdentity] = field(default_factory=lambda: {PICTURE: identity(PICTURE)})
    parts: dict[tuple[str, str], CheckpointInfo | str] = field(default_factory=dict)
    files: dict[tuple[str, str], FileIdentity | str] = field(default_factory=dict)
    num_listings: int = 0

    def choices(self, kind: str) -> tuple[str, ...]:
        self.num_listings += 1
        if kind in ("checkpoints", "input"):
            return tuple(sorted(self.checkpoints if kind == "checkpoints" else self.pictures))
        return tuple(sorted(name for of, name in (*self.parts, *self.files) if of == kind))

    def checkpoint(self, name: str) -> CheckpointInfo:
        found = self.checkpoints.get(name, "there is no such checkpoint")
        if isinstance(found, str):
            raise ModelFileProblem(found, name=name)
        return found

    def part(self, kind: str, name: str) -> CheckpointInfo:
        found = self.parts.get((kind, name), f"there is no file {name!r} in {kind}")
        if isinstance(found, str):
            raise ModelFileProblem(found, name=name)
        return found

    def file(self, kind: str, name: str) -> FileIdentity:
        found = self.files.get((kind, name), f"there is no file {name!r} in {kind}")
        if isinstance(found, str):
            raise ModelFileProblem(found, name=name)
        return found

    def picture(self, name: str) -> FileIdentity:
        bare = name.removesuffix(" [input]")
        if bare not in self.pictures:
            raise ModelFileProblem(f"there is no picture called {name!r}", name=name)
        return self.pictures[bare]


PART_KINDS = {
    "vae": Role.VAE,
    "diffusion_models": Role.DENOISER,
    "text_encoders": Role.TEXT_ENCODER,
    "controlnet": Role.CONTROLNET,
    "upscale_models": Role.UPSCALER,
}


def every_file() -> KnownFiles:
    """A server with a file of each kind."""
    parts: dict[tuple[str, str], CheckpointInfo | str] = {
        (kind, f"{role}.safetensors"): sd15(f"{role}.safetensors", frozenset({role}))
        for kind, role in PART_KINDS.items()
    }
    files = {(kind, f"my-{kind}.safetensors"): identity(kind) for kind in ("loras", "embeddings")}
    return KnownFiles(parts=parts, files=files)


class NoFiles(KnownFiles):
    """A server without any model or picture."""

    def __init__(self) -> None:
        super().__init__(checkpoints={}, pictures={})
