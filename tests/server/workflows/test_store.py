"""The database of registered workflows: versions, contents, bounds, what survives."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nodeloom.server.workflows import store as store_module
from nodeloom.server.workflows.records import (
    GraphSource,
    Parameter,
    RegistrationConflict,
    UnknownWorkflow,
)
from nodeloom.server.workflows.store import WorkflowStore


def graph(color: int = 1) -> GraphSource:
    width = Parameter(name="width", node_id="1", input="width", type="INT", default=16)
    prompt = {"1": {"class_type": "EmptyImage", "inputs": {"color": color}}}
    return GraphSource(prompt=prompt, parameters=(width,), outputs={"p": "2"})


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[WorkflowStore]:
    store = WorkflowStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_equal_content_is_one_version_and_becomes_current_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "w.db") as store:
        first, is_new = await store.register("a", graph())
        assert (first.version, is_new) == (1, True)
        assert (await store.register("a", graph(2)))[0].version == 2
        assert (await store.version("a")).source == graph(2)
        assert await store.register("a", graph()) == (first, False)
        assert (await store.version("a")).version == 1
        assert await store.numbers("a") == [1, 2]
        assert (await store.register("b", graph()))[0].version == 1


async def test_it_is_all_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path / "w.db") as store:
        version, _ = await store.register("a", graph())
        await store.register("a", graph(2))
    async with opened(tmp_path / "w.db") as store:
        assert await store.version("a", 1) == version
        (summary,) = await store.summaries()
        assert (summary["name"], summary["version"], summary["kind"]) == ("a", 2, "graph")
    assert (tmp_path / "w.db").stat().st_mode & 0o777 == 0o600


async def test_a_deleted_workflow_is_unknown_and_its_numbers_stay_used(tmp_path: Path) -> None:
    async with opened(tmp_path / "w.db") as store:
        await store.register("a", graph())
        await store.delete("a")
        for work in (
            store.version("a"),
            store.version("a", 1),
            store.numbers("a"),
            store.delete("a"),
        ):
            with pytest.raises(UnknownWorkflow):
                await work
        assert await store.summaries() == []
        assert (await store.register("a", graph()))[0].version == 2


async def test_an_unknown_version_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path / "w.db") as store:
        await store.register("a", graph())
        with pytest.raises(UnknownWorkflow, match="'a' with a version 7"):
            await store.version("a", 7)


async def test_there_is_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path / "w.db") as store:
        await store.register("a", graph())
        monkeypatch.setattr(store_module, "MAX_WORKFLOWS", 1)
        with pytest.raises(RegistrationConflict, match="delete some"):
            await store.register("b", graph())
        await store.delete("a")
        await store.register("b", graph())
        await store.delete("b")
        await store.register("a", graph(2))
        monkeypatch.setattr(store_module, "MAX_BYTES", 300)
        with pytest.raises(RegistrationConflict, match="may hold"):
            await store.register("a", graph(3))
        assert await store.numbers("a") == [2]


async def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.db").write_text("no database" * 100)
    store = WorkflowStore(tmp_path / "w.db")
    with pytest.raises(sqlite3.DatabaseError):
        await store.open()
    await store.close()
