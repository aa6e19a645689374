"""Who is told what when: one client's requests are told one after another.

Execution is concurrent, but ComfyUI's clients were written against a server that runs one prompt
at a time. So the notices of a client's later request wait until the earlier one's story has ended.
A request without a client has a lane of its own. Pure: notices in, notices out.
Source: architecture, section 14 ("Messages").
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ..ids import ClientId, RequestId
from ..notices import AnyNotice, Progress, ProgressState


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """Marks the place in a story where history, queue count and end marker change together."""

    request_id: RequestId


Told = AnyNotice | Ending


@dataclass(slots=True)
class _WaitingStory:
    """What will be said when the story's turn comes, without what nobody will miss by then.

    Previews are dropped, and of the pictures of progress only the last one is kept.
    """

    told: list[Told | None] = field(default_factory=list)
    last_state: int | None = None

    def add(self, pieces: list[Told]) -> None:
        for piece in pieces:
            if isinstance(piece, ProgressState):
                if self.last_state is not None:
                    self.told[self.last_state] = None
                self.last_state = len(self.told)
            elif isinstance(piece, Progress):
                piece = msgspec.structs.replace(piece, preview=None)
            self.told.append(piece)

    def pieces(self) -> list[Told]:
        return [piece for piece in self.told if piece is not None]


@dataclass(slots=True)
class _Lane:
    current: RequestId | None = None
    waiting: dict[RequestId, _WaitingStory] = field(default_factory=dict)


class Lanes:
    """Orders the stories of all clients."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._order: dict[RequestId, tuple[float, RequestId]] = {}
        self._key: dict[RequestId, str] = {}

    def open(self, request_id: RequestId, client_id: ClientId | None, number: float) -> None:
        """A request's story begins: its first notices may follow."""
        key = f"client {client_id}" if client_id is not None else f"request {request_id}"
        self._key[request_id] = key
        self._order[request_id] = (number, request_id)
        lane = self._lanes.setdefault(key, _Lane())
        if lane.current is None:
            lane.current = request_id
        else:
            lane.waiting[request_id] = _WaitingStory()

    def tell(self, request_id: RequestId, told: list[Told]) -> list[Told]:
        """Add to a request's story; returns what may be said now, perhaps of later requests too."""
        lane = self._lanes[self._key[request_id]]
        if lane.current != request_id:
            lane.waiting[request_id].add(told)
            return []
        said = list(told)
        while said and isinstance(said[-1], Ending) and said[-1].request_id == lane.current:
            said += self._next(lane, lane.current)
        return said

    def _next(self, lane: _Lane, ended: RequestId) -> list[Told]:
        key = self._key.pop(ended)
        del self._order[ended]
        if not lane.waiting:
            del self._lanes[key]
            lane.current = None
            return []
        lane.current = min(lane.waiting, key=lambda request_id: self._order[request_id])
        return lane.waiting.pop(lane.current).pieces()
