"""What reports teach: how long calls, batches of calls, loads and switches take."""

from __future__ import annotations

from ..protocol import CallDone
from .events import BatchReported
from .executors import RunningBatch
from .profiles import Profiles


def learn(profiles: Profiles, batch: RunningBatch, event: BatchReported) -> None:
    """Measure: `run_s` is all of the batch, so loading, switching and waiting are taken off.

    A batch of which a call was not done teaches nothing of calls. Sizes of batches are compared by
    what they took of their device, where that is known: others make it slow for one and not for
    the next.
    """
    for loaded in event.loaded:
        profiles.load(loaded.key).learn(loaded.seconds_s)
    for switched in event.switched:
        profiles.switch(switched.key).learn(switched.seconds_s)
    if not all(isinstance(result, CallDone) for result in event.results):
        return
    calls_s = event.run_s - event.waited_s
    calls_s -= sum(loaded.seconds_s for loaded in event.loaded)
    calls_s -= sum(switched.seconds_s for switched in event.switched)
    calls_s = max(0.0, calls_s)  # its parts are measured one by one, with clocks of their own
    size = len(batch.calls)
    batch.calls[0].state.profile.learn(calls_s / size)
    key = None if batch.model is None else batch.model.key
    worked_s = calls_s if event.worked_s is None else event.worked_s
    profiles.batches(batch.op, key, batch.shape).learn(size, worked_s, event.incarnation)
