"""A journal of a real run, with a loss and a cancel in it, replays to the same decisions."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.base_directory import make_base
from kit.cluster import ServerProcess, connect
from kit.prompts import txt2img
from nodeloom.runtime.coordinator.journal import read_journal, replay
from nodeloom.runtime.errors import InvariantBroken
from nodeloom.runtime.scheduler.invariants import check_scheduler


async def test_a_journal_of_a_real_run_can_be_replayed(checkpoint: Path, tmp_path: Path) -> None:
    base = make_base(tmp_path, checkpoint)
    with ServerProcess(base, executors=2, flags=("--preview-method", "latent2rgb")) as server:
        async with connect(server.url) as client:
            doomed = await client.submit(txt2img(seed=1, steps=50))
            await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")
            server.kill_executor(server.executors()[0])
            server.post("/interrupt", {"prompt_id": doomed["prompt_id"]})
            await client.end_of(doomed["prompt_id"])
            entry = await client.run(txt2img(seed=2, steps=3))
            assert entry["status"]["completed"]
    (path,) = (base / "user" / "nodeloom" / "journal").glob("journal-*.jsonl")
    assert path.stat().st_mode & 0o077 == 0
    lines = list(read_journal(path))
    assert len(lines) > 10
    check_scheduler(replay(path))
    text = path.read_text().splitlines()
    target = next(i for i, line in enumerate(text) if '"BatchReported"' in line)
    (base / "changed.jsonl").write_text("\n".join(text[:target] + text[target + 1 :]) + "\n")
    with pytest.raises(InvariantBroken):
        replay(base / "changed.jsonl")
