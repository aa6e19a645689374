"""A catalog in which files stay what they were when a Graph was first lowered."""

from __future__ import annotations

import msgspec

from ..catalog import Catalog, CheckpointInfo
from ..handles import FileIdentity
from ..ir import Graph


class PinnedCatalog:
    """Answers with the file identities that `graph` already holds.

    A growing graph is lowered again; a picture that was overwritten meanwhile must not turn nodes
    that already ran into others. An executor that opens the file sees the change.
    """

    def __init__(self, catalog: Catalog, graph: Graph) -> None:
        self._catalog = catalog
        self._pinned = {file.path: file for file in _files(graph)}

    def choices(self, kind: str) -> tuple[str, ...]:
        return self._catalog.choices(kind)

    def checkpoint(self, name: str) -> CheckpointInfo:
        info = self._catalog.checkpoint(name)
        return msgspec.structs.replace(info, file=self._pinned.get(info.file.path, info.file))

    def part(self, kind: str, name: str) -> CheckpointInfo:
        info = self._catalog.part(kind, name)
        return msgspec.structs.replace(info, file=self._pinned.get(info.file.path, info.file))

    def file(self, kind: str, name: str) -> FileIdentity:
        file = self._catalog.file(kind, name)
        return self._pinned.get(file.path, file)

    def picture(self, name: str) -> FileIdentity:
        file = self._catalog.picture(name)
        return self._pinned.get(file.path, file)


def _files(graph: Graph) -> list[FileIdentity]:
    refs = [node.model for node in graph.nodes if node.model is not None]
    models = [ref.key.file for ref in refs]
    models += [patch.file for ref in refs for patch in ref.patches]
    pictures = [
        msgspec.convert(dict(node.params), FileIdentity)
        for node in graph.nodes
        if node.op == "load_image"
    ]
    return models + pictures
