"""Chains in a real server: sent ahead, stopped at a boundary when somebody else comes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import Client, ServerProcess, connect
from kit.prompts import txt2img
from nodeloom.runtime.coordinator.journal import Line, read_journal
from nodeloom.runtime.scheduler.actions import NodeFinished, Recall, SendBatch
from nodeloom.runtime.scheduler.scheduler import Scheduler

STEPS = 30


def actions_of(base: Path) -> list[object]:
    """What the server's scheduler asked for, in order, by replaying its journal."""
    (journal,) = (base / "user" / "nodeloom" / "journal").glob("*.jsonl")
    scheduler: Scheduler | None = None
    actions: list[object] = []
    for line in read_journal(journal):
        if not isinstance(line, Line):
            scheduler = Scheduler(line.config)
            continue
        assert scheduler is not None
        actions += scheduler.on_event(line.event, line.now_s)
    return actions


async def is_sampling(client: Client) -> None:
    await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")


async def test_an_idle_server_sends_a_request_ahead(checkpoint: Path, tmp_path: Path) -> None:
    base = make_base(tmp_path, checkpoint)
    with ServerProcess(base, executors=1, flags=("--strict",)) as server:
        async with connect(server.url) as client:
            await client.run(txt2img(seed=1, steps=STEPS))
    actions = actions_of(base)
    sent = [a.batch for a in actions if isinstance(a, SendBatch) and a.batch.op == "denoise"]
    assert len(sent) == STEPS
    # But for the first ones: which models are there shows with the first reports.
    assert sum(batch.after is None for batch in sent) <= 2
    assert not [a for a in actions if isinstance(a, Recall)]


@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "default"])
async def test_a_request_that_goes_first_stops_a_chain_at_the_next_boundary(
    checkpoint: Path, tmp_path: Path, is_strict: bool
) -> None:
    base = make_base(tmp_path, checkpoint)
    flags = ("--strict",) if is_strict else ()
    with ServerProcess(base, executors=1, flags=flags) as server:
        async with connect(server.url) as first, connect(server.url) as second:
            # Models are loaded before, so that the chain is long from the start.
            warm = await first.run(txt2img(seed=1, steps=STEPS))
            undisturbed = await first.picture(warm, "9")
            accepted = await first.submit(txt2img(seed=1, steps=STEPS))
            await is_sampling(first)
            urgent = await second.submit(txt2img(seed=2, steps=2), front=True)
            await second.end_of(urgent["prompt_id"])
            late = server.get(f"/history/{accepted['prompt_id']}")
            await first.end_of(accepted["prompt_id"])
            entry = await first.history(accepted["prompt_id"])
            drawn = await first.picture(entry, "9")
    assert late == {}  # the one that came first was not done by then
    assert any(isinstance(action, Recall) for action in actions_of(base))
    if is_strict:
        assert drawn == undisturbed
    order = [
        (action.request_id, action.node_id)
        for action in actions_of(base)
        if isinstance(action, NodeFinished)
    ]
    mine = [index for index, (request, _) in enumerate(order) if request == urgent["prompt_id"]]
    between = {request for request, _ in order[mine[0] : mine[-1]]}
    assert between <= {urgent["prompt_id"], accepted["prompt_id"]}
    assert np.diff(mine).max() <= 2  # at most the step that ran already came between
