"""A catalog in which files stay what they were when a Graph was first lowered."""

from __future__ import annotations

from typing import Final

import msgspec

from ..catalog import Catalog, CheckpointInfo
from ..errors import ModelFileProblem
from ..handles import FileIdentity
from ..ir import Graph
from ..prompt_text import embedding_names, without_commas

# Ops whose params are a file's identity.
TEXT_OPS: Final = frozenset({"text_encode", "text_encode_each"})
TEXTS: Final = frozenset({"text", "text_clip_l", "text_t5xxl"})  # their texts
FILE_OPS: Final = frozenset({"load_image", "load_image_mask", "patch_fetch"})


class PinnedCatalog:
    """Answers with the file identities that `graph` already holds.

    A growing graph is lowered again; a picture that was overwritten meanwhile must not turn nodes
    that already ran into others. An executor that opens the file sees the change.
    """

    def __init__(self, catalog: Catalog, graph: Graph) -> None:
        self._catalog = catalog
        self._pinned = {file.path: file for file in _files(graph)}
        self._embeddings = _embeddings(graph)

    def choices(self, kind: str) -> tuple[str, ...]:
        return self._catalog.choices(kind)

    def checkpoint(self, name: str) -> CheckpointInfo:
        info = self._catalog.checkpoint(name)
        return msgspec.structs.replace(info, file=self._pinned.get(info.file.path, info.file))

    def part(self, kind: str, name: str) -> CheckpointInfo:
        info = self._catalog.part(kind, name)
        return msgspec.structs.replace(info, file=self._pinned.get(info.file.path, info.file))

    def file(self, kind: str, name: str) -> FileIdentity:
        if kind == "embeddings":
            for written in (name, name.rpartition(".")[0]):
                if written in self._embeddings:
                    return self._embedding(written)
        file = self._catalog.file(kind, name)
        return self._pinned.get(file.path, file)

    def _embedding(self, name: str) -> FileIdentity:
        file = self._embeddings[name]
        if file is None:
            raise ModelFileProblem(f"there was no embedding {name!r}", name=name)
        return file

    def picture(self, name: str) -> FileIdentity:
        file = self._catalog.picture(name)
        return self._pinned.get(file.path, file)


def _files(graph: Graph) -> list[FileIdentity]:
    refs = [node.model for node in graph.nodes if node.model is not None]
    models = [file for ref in refs for file in ref.key.files]
    models += [patch.file for ref in refs for patch in ref.patches]
    others = [
        msgspec.convert(dict(node.params), FileIdentity)
        for node in graph.nodes
        if node.op in FILE_OPS
    ]
    return models + others


def _embeddings(graph: Graph) -> dict[str, FileIdentity | None]:
    """What the names in encoded texts stood for: a file, or None, in each text alike."""
    known: dict[str, FileIdentity | None] = {}
    for node in graph.nodes:
        texts = [value for param, value in node.params if param in TEXTS]
        for text in texts if node.op in TEXT_OPS else ():
            for written in embedding_names(str(text)):
                known.update(dict.fromkeys((written, without_commas(written)[0])))
    for node in graph.nodes:
        for param, value in node.params:
            if node.op in TEXT_OPS and param.startswith("embedding_"):
                name, path, size_bytes, mtime_ns = msgspec.json.decode(str(value))
                known[name] = FileIdentity(path=path, size_bytes=size_bytes, mtime_ns=mtime_ns)
    return known
