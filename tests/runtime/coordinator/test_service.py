"""The coordinator against clients that collide, executors that misbehave and late answers."""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from kit.graphs import graph, node, pending
from kit.protocol_peer import joined
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.ir import Graph
from nodeloom.runtime.config import read_settings
from nodeloom.runtime.coordinator import driver, service
from nodeloom.runtime.coordinator.records import Json, Known, Submission
from nodeloom.runtime.coordinator.service import Coordinator
from nodeloom.runtime.errors import AdmissionRejected
from nodeloom.runtime.ids import ClientId, ExecutorId, RequestId
from nodeloom.runtime.notices import AnyNotice, EndMarker, Failed
from nodeloom.runtime.protocol import CancelBatch
from nodeloom.runtime.wire import MAX_MESSAGE_BYTES

LIMIT_S = 20.0
GRAPH = graph(
    node("a", "image_size", gives=["INT"]), node("b", "save_image", reads=["a"], gives=[])
)


class HeldImporter:
    """Grows any graph by a node `c`, but only when it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.refuses = False
        self.disk: OSError | None = None

    def lower(self, prompt: Json, roots: Sequence[str], extra_data: Json) -> Graph:
        if self.disk is not None:
            raise self.disk
        return GRAPH

    def grow(
        self, graph_: Graph, prompt: Json, roots: Sequence[str], extra_data: Json, known: Known
    ) -> Graph:
        assert self.let_go.wait(LIMIT_S)
        if self.refuses:
            raise ImportRejected("prompt_outputs_failed_validation", "the value makes no sense")
        return graph(*graph_.nodes, node("c", "save_image", reads=["a"], gives=[]))


class Plant:
    """A coordinator and all that it said."""

    def __init__(self, base: Path) -> None:
        settings = read_settings(argparse.Namespace(base_directory=str(base)), {})
        self.importer = HeldImporter()
        self.said: list[AnyNotice] = []
        self.coordinator = Coordinator(settings, self.importer, self.said.append)

    async def ended(self, *request_ids: str) -> None:
        """Wait until these requests have their end markers."""
        async with asyncio.timeout(LIMIT_S):
            while not set(request_ids) <= self.ends():
                await asyncio.sleep(0.01)

    def ends(self) -> set[str]:
        return {notice.request_id for notice in self.said if isinstance(notice, EndMarker)}


@pytest_asyncio.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    plant = Plant(tmp_path)
    await plant.coordinator.start()
    yield plant
    plant.importer.let_go.set()
    await plant.coordinator.stop()


def submission(
    name: str, number: float = 0, client: str | None = None, hidden: dict[str, str] | None = None
) -> Submission:
    return Submission(
        request_id=RequestId(name),
        client_id=None if client is None else ClientId(client),
        number=number,
        prompt={},
        extra_data={},
        roots=(),
        hidden=hidden or {},
    )


async def test_a_request_that_is_deleted_while_it_is_stored_disturbs_nobody(plant: Plant) -> None:
    async with joined(plant.coordinator):
        deleted = asyncio.create_task(plant.coordinator.submit(submission("a"), GRAPH))
        await asyncio.sleep(0)
        await plant.coordinator.clear_pending()
        await deleted
        await plant.coordinator.submit(submission("b"), GRAPH)
        await plant.ended("b")
    assert plant.ends() <= {"a", "b"}
    assert not plant.coordinator.failure.done()


async def test_an_id_can_be_used_again_after_its_request_was_deleted(plant: Plant) -> None:
    for _ in range(5):
        await plant.coordinator.submit(submission("a"), GRAPH)
        await plant.coordinator.delete_pending([RequestId("a"), RequestId("unknown")])
    await plant.coordinator.submit(submission("a"), GRAPH)
    async with joined(plant.coordinator):
        await plant.ended("a")
    assert await plant.coordinator.history_entry(RequestId("a")) is not None


async def test_a_live_id_and_a_full_queue_are_refused(tmp_path: Path) -> None:
    flags = argparse.Namespace(base_directory=str(tmp_path), max_queue=2)
    coordinator = Coordinator(read_settings(flags, {}), HeldImporter(), lambda notice: None)
    await coordinator.start()
    await coordinator.submit(submission("a"), GRAPH)
    with pytest.raises(AdmissionRejected, match="waiting or running"):
        await coordinator.submit(submission("a"), GRAPH)
    await coordinator.submit(submission("b"), GRAPH)
    with pytest.raises(AdmissionRejected, match="full"):
        await coordinator.submit(submission("c"), GRAPH)
    await coordinator.stop()


async def test_a_batch_too_large_for_a_message_fails_its_request_only(plant: Plant) -> None:
    wants = graph(node("a", "save_image", gives=[], hidden=("prompt",)))
    huge = {"prompt": "x" * (MAX_MESSAGE_BYTES + 1)}
    async with joined(plant.coordinator):
        await plant.coordinator.submit(submission("huge", hidden=huge), wants)
        await plant.coordinator.submit(submission("small", 1, hidden={"prompt": "x"}), wants)
        await plant.ended("huge", "small")
    failed = [notice for notice in plant.said if isinstance(notice, Failed)]
    assert [notice.request_id for notice in failed] == ["huge"]
    assert failed[0].error.code == "wire_problem"


async def test_an_interrupt_takes_what_runs_not_what_has_ended_untold(plant: Plant) -> None:
    single = graph(node("x", "image_scale", gives=[]))
    async with (
        joined(plant.coordinator, "e0", answers=False) as one,
        joined(plant.coordinator, "e1", answers=False) as two,
    ):
        await plant.coordinator.submit(submission("told", 5, "c"), single)
        await one.until(lambda heard: bool(heard))
        await plant.coordinator.submit(submission("untold", -1, "c"), single)
        await two.until(lambda heard: bool(heard))
        await two.report(two.batches()[0])
        async with asyncio.timeout(LIMIT_S):
            while len(plant.coordinator.executors()) and any(
                view.id == "e1" and view.running for view in plant.coordinator.executors()
            ):
                await asyncio.sleep(0.01)
        await plant.coordinator.interrupt(None)
        await one.until(lambda heard: any(isinstance(m, CancelBatch) for m in heard))


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_late_growth_answer_does_not_reach_another_request_of_that_id(
    plant: Plant, refuses: bool
) -> None:
    plant.importer.refuses = refuses
    growing = graph(node("a", "image_size", gives=["INT"]), pending=[pending("p", "a")], sinks=[])
    async with joined(plant.coordinator) as peer:
        await plant.coordinator.submit(submission("r"), growing)
        await peer.until(lambda heard: bool(heard))
        async with asyncio.timeout(LIMIT_S):
            while plant.coordinator.queue_remaining():
                await plant.coordinator.interrupt(RequestId("r"))
                await asyncio.sleep(0.01)
        plant.said.clear()
        await plant.coordinator.submit(submission("r"), GRAPH)
        plant.importer.let_go.set()
        await plant.ended("r")
    assert not plant.coordinator.failure.done()
    assert not [notice for notice in plant.said if isinstance(notice, Failed)]


async def test_a_silent_executor_is_given_up_and_its_process_ended(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SILENCE_LIMIT_S", 0.3)
    killed: list[tuple[ExecutorId, str]] = []
    plant.coordinator.kill_executor = lambda executor, incarnation: killed.append(
        (executor, incarnation)
    )
    async with joined(plant.coordinator, answers=False) as peer:
        await plant.coordinator.submit(submission("a"), GRAPH)
        async with asyncio.timeout(LIMIT_S):
            while plant.coordinator.executors():
                await asyncio.sleep(0.01)
        assert killed == [(peer.executor, peer.incarnation)]
    async with joined(plant.coordinator, "e1"):
        await plant.ended("a")


async def test_an_executor_that_does_not_stop_is_replaced(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "CANCEL_LIMIT_S", 0.3)
    killed: list[ExecutorId] = []
    plant.coordinator.kill_executor = lambda executor, incarnation: killed.append(executor)
    async with joined(plant.coordinator, answers=False) as peer:
        await plant.coordinator.submit(submission("a"), GRAPH)
        await peer.until(lambda heard: bool(heard))
        await plant.coordinator.interrupt(RequestId("a"))
        await plant.ended("a")
    assert killed == [peer.executor]


async def test_an_unfinished_request_is_taken_up_by_the_next_start(tmp_path: Path) -> None:
    first = Plant(tmp_path)
    await first.coordinator.start()
    await first.coordinator.submit(submission("a", 7), GRAPH)
    await first.coordinator.stop()
    second = Plant(tmp_path)
    await second.coordinator.start()
    assert second.coordinator.next_number() == 8
    async with joined(second.coordinator):
        await second.ended("a")
    await second.coordinator.stop()


async def test_a_request_that_the_disk_refuses_fails_and_the_start_goes_on(tmp_path: Path) -> None:
    first = Plant(tmp_path)
    await first.coordinator.start()
    await first.coordinator.submit(submission("a"), GRAPH)
    await first.coordinator.stop()
    second = Plant(tmp_path)
    second.importer.disk = OSError(28, "No space left on device")
    await second.coordinator.start()
    await second.ended("a")
    entry = await second.coordinator.history_entry(RequestId("a"))
    await second.coordinator.stop()
    assert entry is not None
    assert not entry.completed
    assert "No space left" in str(entry.messages)
