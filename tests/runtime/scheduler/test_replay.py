"""Equal events give equal actions: in the same process, and in one that hashes text otherwise."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
from kit.graphs import graph, model, node, pending, text_to_image
from kit.plant import Plant
from nodeloom.graph_import.types import INT
from nodeloom.runtime.scheduler.actions import AnyAction
from nodeloom.runtime.scheduler.events import AnyEvent, ModelsDropped
from nodeloom.runtime.scheduler.scheduler import Scheduler

TESTS = Path(__file__).resolve().parents[2]


def eventful_day() -> Plant:
    """Requests, growth, losses and cancels over four executors."""
    plant = Plant()
    for i in range(4):
        plant.join(f"gpu{i}")
    for i in range(6):
        plant.arrive(f"r{i}", text_to_image(4, name=f"m{i % 2}"), number=float(i % 3))
    size = node("size", "image_size", gives=[INT])
    plant.arrive("grows", graph(size, sinks=[], pending=[pending("p", "size")]))
    for i in range(40):
        plant.report(plant.busy()[i % len(plant.busy())])
        if i == 10:
            plant.join("gpu2")
        if i == 20:
            plant.cancel("r1")
            plant.lose("gpu0")
        if i == 30:
            plant.happen(ModelsDropped())
    plant.run_all()
    plant.grow("grows", graph(size, node("s", "denoise", ref=model("m0"), reads=["size"])))
    plant.run_all()
    plant.assert_empty()
    return plant


def digest(plant: Plant) -> str:
    """Of all actions, encoded."""
    answers = [msgspec.msgpack.encode(actions) for _, _, actions in plant.log]
    return hashlib.sha256(b"".join(answers)).hexdigest()


def test_a_journal_gives_the_same_actions_after_a_trip_through_json() -> None:
    plant = eventful_day()
    scheduler = Scheduler(plant.scheduler.config)
    for event, now_s, actions in plant.log:
        stored = msgspec.json.encode(event)
        again = scheduler.on_event(msgspec.json.decode(stored, type=AnyEvent), now_s)
        assert msgspec.json.decode(msgspec.json.encode(again), type=list[AnyAction]) == actions


def test_the_order_of_sets_and_hashes_decides_nothing() -> None:
    script = (
        "import runpy, sys; module = runpy.run_path(sys.argv[1]);"
        "print(module['digest'](module['eventful_day']()))"
    )
    printed = set()
    for seed in ("1", "2"):
        environment = dict(os.environ) | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(TESTS)}
        run = subprocess.run(
            [sys.executable, "-c", script, __file__],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        printed.add(run.stdout.strip())
    assert printed == {digest(eventful_day())}
