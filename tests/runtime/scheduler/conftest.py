"""The plant that most scheduler tests use: default mode, no executor yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.plant import Plant
from nodeloom.runtime.scheduler.invariants import check_scheduler
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig


@pytest.fixture
def plant() -> Iterator[Plant]:
    plant = Plant()
    yield plant
    check_scheduler(plant.scheduler)


@pytest.fixture
def strict_plant() -> Iterator[Plant]:
    plant = Plant(SchedulerConfig(is_strict=True, max_ahead=0))
    yield plant
    check_scheduler(plant.scheduler)
