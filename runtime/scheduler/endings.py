"""How requests end: said exactly once, and not before every executor is free of the request."""

from __future__ import annotations

from dataclasses import dataclass

from ..ids import RequestId
from .actions import AnyAction, CancelSent, Outcome, RequestEnded, RequestStarted
from .executors import Executors, ExecutorSlot
from .request_state import Ending, RequestState


@dataclass(slots=True)
class Endings:
    """Ends requests; appends to `actions` what the coordinator must do for that."""

    requests: dict[RequestId, RequestState]
    executors: Executors
    actions: list[AnyAction]

    def begin(self, request: RequestState, ending: Ending) -> None:
        """Decide how the request ends. The first decision stands.

        Nothing more of it is sent. Batches that run only for requests which are ending are
        cancelled; a batch that others wait for goes on, and this request ends when it is reported.
        """
        if request.ending is not None:
            return
        request.ending = ending
        request.drop_waiting()
        for state in request.running.values():
            assert state.executor is not None
            if state.executor in self.executors:
                self._cancel_unwanted(self.executors[state.executor])
        self.end_if_free(request)

    def end_if_done(self, request: RequestState) -> None:
        """The request has succeeded once its sinks are done and nothing is left to lower."""
        if not request.open_sinks and not request.growth.pending:
            self.begin(request, Ending(Outcome.SUCCESS))

    def end_if_free(self, request: RequestState) -> None:
        """Say the end of a request that is ending and that no executor works for any more."""
        ending = request.ending
        if ending is None or request.running:
            return
        del self.requests[request.request_id]
        if not request.is_started and ending.outcome is not Outcome.INTERRUPTED:
            self.actions.append(RequestStarted(request_id=request.request_id))
        self.actions.append(
            RequestEnded(
                request_id=request.request_id,
                outcome=ending.outcome,
                node_id=ending.node_id,
                error=ending.error,
            )
        )

    def _cancel_unwanted(self, slot: ExecutorSlot) -> None:
        for batch in slot.batches():
            if batch.is_unwanted and not batch.is_cancelled:
                batch.is_cancelled = True
                self.actions.append(CancelSent(executor=slot.executor, batch_id=batch.batch_id))
