"""What patch files changed in models, kept for the records of the requests that used them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ...graph_import.handles import FileIdentity, ModelKey
from ...graph_import.ir import Graph
from ..protocol import PatchCoverage
from .records import Json

MAX_KEPT: Final = 512

_Place = tuple[ModelKey, FileIdentity]


@dataclass(slots=True)
class CoverageBook:
    """The last report of each (model, file): executors repeat it with every batch that has them."""

    _reports: OrderedDict[_Place, PatchCoverage] = field(default_factory=OrderedDict)

    def note(self, coverage: Iterable[PatchCoverage]) -> None:
        """An executor's batch ran with these patches."""
        for report in coverage:
            place = (report.key, report.file)
            self._reports[place] = report
            self._reports.move_to_end(place)
        while len(self._reports) > MAX_KEPT:
            self._reports.popitem(last=False)

    def of(self, graph: Graph) -> list[Json]:
        """What is known of the patches in a graph, as the history tells it."""
        refs = dict.fromkeys(node.model for node in graph.nodes if node.model is not None)
        places = dict.fromkeys((ref.key, patch.file) for ref in refs for patch in ref.patches)
        return [_told(self._reports[place]) for place in places if place in self._reports]


def _told(report: PatchCoverage) -> Json:
    return {
        "file": report.file.path.rpartition("/")[2],
        "model": report.key.label(),
        "applied": report.num_applied,
        "ignored": report.num_ignored,
        "misshapen": report.num_misshapen,
        "ignored_keys": list(report.ignored),
        "misshapen_keys": list(report.misshapen),
    }
