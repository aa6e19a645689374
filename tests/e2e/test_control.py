"""Queue and interruption, as a client sees them."""

from __future__ import annotations

from kit.cluster import ServerProcess, connect
from kit.prompts import txt2img

LONG = 400


def queued(server: ServerProcess) -> tuple[list[str], list[str]]:
    queue = server.get("/queue")
    return (
        [item[1] for item in queue["queue_running"]],
        [item[1] for item in queue["queue_pending"]],
    )


async def test_an_interrupt_stops_a_running_request_within_a_step(
    shared_server: ServerProcess,
) -> None:
    async with connect(shared_server.url) as client:
        accepted = await client.submit(txt2img(seed=41, steps=LONG))
        await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")
        assert queued(shared_server)[0] == [accepted["prompt_id"]]
        status, _ = shared_server.post("/interrupt", {"prompt_id": accepted["prompt_id"]})
        assert status == 200
        await client.end_of(accepted["prompt_id"])
        entry = await client.history(accepted["prompt_id"])
    assert entry["status"]["status_str"] == "error"
    assert entry["status"]["completed"] is False
    name, data = entry["status"]["messages"][-1]
    assert (name, data["node_id"], data["node_type"]) == ("execution_interrupted", "3", "KSampler")
    values = [
        m["data"]["value"]
        for m in client.messages
        if isinstance(m, dict) and m["type"] == "progress"
    ]
    assert max(values) < LONG
    assert queued(shared_server) == ([], [])


async def test_interrupting_without_an_id_stops_the_oldest_and_the_next_goes_on(
    shared_server: ServerProcess,
) -> None:
    async with connect(shared_server.url) as client:
        first = await client.submit(txt2img(seed=42, steps=LONG))
        second = await client.submit(txt2img(seed=43, steps=1))
        await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")
        shared_server.post("/interrupt", {})
        await client.end_of(second["prompt_id"])
        stopped = await client.history(first["prompt_id"])
        finished = await client.history(second["prompt_id"])
    assert stopped["status"]["messages"][-1][0] == "execution_interrupted"
    assert finished["status"]["completed"]


async def test_an_interrupt_while_idle_has_no_effect_on_the_next_request(
    shared_server: ServerProcess,
) -> None:
    shared_server.post("/interrupt", {})
    async with connect(shared_server.url) as client:
        entry = await client.run(txt2img(seed=44, steps=1))
    assert entry["status"]["completed"]


async def test_a_failing_node_ends_its_request_and_names_itself(
    shared_server: ServerProcess,
) -> None:
    prompt = txt2img(seed=45, steps=1)
    (shared_server.base / "input" / "text.png").write_bytes(b"this is no picture")
    prompt["30"] = {"class_type": "LoadImage", "inputs": {"image": "text.png"}}
    prompt["31"] = {"class_type": "PreviewImage", "inputs": {"images": ["30", 0]}}
    async with connect(shared_server.url) as client, connect(shared_server.url) as neighbour:
        beside = await neighbour.submit(txt2img(seed=46, steps=3))
        entry = await client.run(prompt)
        await neighbour.end_of(beside["prompt_id"])
        assert (await neighbour.history(beside["prompt_id"]))["status"]["completed"]
    name, data = entry["status"]["messages"][-1]
    assert (name, data["node_id"], data["node_type"]) == ("execution_error", "30", "LoadImage")
    assert "text.png" in data["exception_message"]
    assert data["traceback"]
    kinds = [m["type"] for m in client.messages if isinstance(m, dict)]
    assert kinds[-3:] == ["execution_error", "status", "executing"]


async def test_a_waiting_request_can_be_deleted_without_a_trace(
    shared_server: ServerProcess,
) -> None:
    shared_server.post("/free", {"unload_models": True})
    async with connect(shared_server.url) as client:
        running = [
            (await client.submit(txt2img(seed=50 + i, steps=LONG)))["prompt_id"] for i in range(4)
        ]
        waiting = (await client.submit(txt2img(seed=60, steps=LONG), number=1e9))["prompt_id"]
        _, pending = queued(shared_server)
        shared_server.post("/queue", {"delete": [waiting]})
        if waiting in pending:
            assert all(waiting not in part for part in queued(shared_server))
            assert shared_server.get(f"/history/{waiting}") == {}
        for prompt_id in [*running, waiting]:
            shared_server.post("/queue", {"delete": [prompt_id]})
            shared_server.post("/interrupt", {"prompt_id": prompt_id})
        shared_server.wait_for(lambda: queued(shared_server) == ([], []), "an empty queue")
