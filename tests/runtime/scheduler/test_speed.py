"""The scheduler keeps up: thousands of nodes a second on one core, however long the queue is."""

from __future__ import annotations

import time

import pytest
from kit.graphs import text_to_image
from kit.plant import Plant
from nodeloom.runtime.scheduler.events import AnyEvent
from nodeloom.runtime.scheduler.scheduler import Scheduler, SchedulerConfig

NUM_REQUESTS = 500
NUM_STEPS = 18  # 25 nodes a request
LEAST_NODES_PER_S = 500.0  # loose: a guard against quadratic behaviour, not a measurement


def recorded(config: SchedulerConfig) -> list[tuple[AnyEvent, float]]:
    """The events of 500 requests over 8 executors, all there from the start."""
    plant = Plant(config, is_checked=False)
    graph = text_to_image(NUM_STEPS)
    for i in range(NUM_REQUESTS):
        plant.arrive(f"r{i:03}", graph, number=float(i))
    for i in range(8):
        plant.join(f"gpu{i}")
    plant.run_all()
    plant.assert_empty()
    return [(event, now_s) for event, now_s, _ in plant.log]


@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "default"])
def test_a_long_queue_is_scheduled_at_thousands_of_nodes_a_second(
    is_strict: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    config = SchedulerConfig(is_strict=is_strict)
    events = recorded(config)
    scheduler = Scheduler(config)
    start_s = time.process_time()
    for event, now_s in events:
        scheduler.on_event(event, now_s)
    elapsed_s = time.process_time() - start_s
    nodes_per_s = NUM_REQUESTS * len(text_to_image(NUM_STEPS).nodes) / elapsed_s
    with capsys.disabled():
        print(f"\n{nodes_per_s:,.0f} nodes/s in {len(events):,} events", end=" ")  # noqa: T201
    assert nodes_per_s > LEAST_NODES_PER_S
