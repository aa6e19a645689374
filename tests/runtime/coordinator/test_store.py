"""The store: accepted requests survive, history is bounded and ordered as ComfyUI's."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from nodeloom.runtime.coordinator.records import HistoryEntry, Submission
from nodeloom.runtime.coordinator.store import Store
from nodeloom.runtime.ids import ClientId, RequestId


def submission(request_id: str, number: float = 0) -> Submission:
    return Submission(
        request_id=RequestId(request_id),
        client_id=ClientId("client"),
        number=number,
        prompt={"1": {"class_type": "X", "inputs": {"seed": 2**64 - 1}}},
        extra_data={},
        roots=("1",),
        hidden={"prompt": "{}"},
    )


def entry(request_id: str) -> HistoryEntry:
    return HistoryEntry(
        submission=submission(request_id),
        outputs={"9": {"images": []}},
        status_str="success",
        completed=True,
        messages=[("execution_start", {"prompt_id": request_id})],
        meta={},
    )


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(tmp_path / "state" / "nodeloom.db")
    await store.open()
    yield store
    await store.close()


async def ended(store: Store, *request_ids: str) -> None:
    for request_id in request_ids:
        await store.accept(submission(request_id))
        await store.finish(entry(request_id))


def ids(entries: list[HistoryEntry]) -> str:
    return "".join(item.submission.request_id for item in entries)


async def test_accepted_requests_are_there_after_reopening(store: Store, tmp_path: Path) -> None:
    await store.accept(submission("a", 3.5))
    await store.accept(submission("b"))
    await store.finish(entry("b"))
    await store.close()
    again = Store(tmp_path / "state" / "nodeloom.db")
    await again.open()
    assert await again.unfinished() == [submission("a", 3.5)]
    assert await again.entry(RequestId("b")) == entry("b")
    await again.close()


def _accept_and_die(path: str) -> None:
    async def work() -> None:
        store = Store(Path(path))
        await store.open()
        await store.accept(submission("a"))
        os.kill(os.getpid(), 9)

    asyncio.run(work())


async def test_accepted_means_durable_even_if_the_process_is_killed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "nodeloom.db"
    process = multiprocessing.get_context("spawn").Process(
        target=_accept_and_die, args=(str(path),)
    )
    await asyncio.to_thread(process.start)
    await asyncio.to_thread(process.join)
    assert process.exitcode == -9
    store = Store(path)
    await store.open()
    assert await store.unfinished() == [submission("a")]
    await store.close()


@pytest.mark.parametrize(
    ("max_items", "offset", "expected"),
    [
        (None, None, "abcde"),
        (2, None, "de"),
        (2, 0, "ab"),
        (2, 1, "bc"),
        (None, 3, "de"),
        (2, -1, "de"),
        (0, None, ""),
        (-1, 2, ""),
    ],
)
async def test_history_bounds_are_comfyuis(
    store: Store, max_items: int | None, offset: int | None, expected: str
) -> None:
    await ended(store, *"abcde")
    assert ids(await store.entries(max_items=max_items, offset=offset)) == expected


async def test_history_is_in_order_of_completion(store: Store) -> None:
    for request_id in "abc":
        await store.accept(submission(request_id))
    for request_id in "bca":
        await store.finish(entry(request_id))
    assert ids(await store.entries(max_items=None, offset=None)) == "bca"


async def test_a_second_run_under_an_id_replaces_the_entry(store: Store) -> None:
    await ended(store, "a", "b", "a")
    assert ids(await store.entries(max_items=None, offset=None)) == "ba"


async def test_deleting_history_leaves_live_requests_alone(store: Store) -> None:
    await ended(store, "a", "b")
    await store.accept(submission("c"))
    await store.delete_entries([RequestId("a"), RequestId("c"), RequestId("unknown")])
    assert ids(await store.entries(max_items=None, offset=None)) == "b"
    await store.delete_entries(None)
    assert await store.entries(max_items=None, offset=None) == []
    assert len(await store.unfinished()) == 1


async def test_forgotten_requests_do_not_come_back(store: Store) -> None:
    await store.accept(submission("a"))
    await store.forget([RequestId("a")])
    assert await store.unfinished() == []


async def test_a_database_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nodeloom.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    store = Store(path)
    with pytest.raises(sqlite3.DatabaseError, match="another version"):
        await store.open()
    await store.close()
