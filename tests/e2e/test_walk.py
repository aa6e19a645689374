"""The walking path: a prompt in, a picture out, told as ComfyUI tells it."""

from __future__ import annotations

import io
import json
from typing import Any

from kit.cluster import Client, ServerProcess, connect
from kit.prompts import txt2img
from PIL import Image


async def test_a_prompt_gives_a_picture_that_carries_its_workflow(
    shared_server: ServerProcess,
) -> None:
    prompt = txt2img(seed=11, prefix="walk/pic")
    workflow = {"id": "w", "nodes": []}
    async with connect(shared_server.url) as client:
        entry = await client.run(prompt, extra_data={"extra_pnginfo": {"workflow": workflow}})
        data = await client.picture(entry, "9")
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.size == (64, 64)
        assert json.loads(picture.text["prompt"]) == prompt  # type: ignore[attr-defined]
        assert json.loads(picture.text["workflow"]) == workflow  # type: ignore[attr-defined]
        low, high = picture.convert("L").getextrema()
        assert low != high
    image = entry["outputs"]["9"]["images"][0]
    assert image == {"filename": "pic_00001_.png", "subfolder": "walk", "type": "output"}
    assert entry["status"]["status_str"] == "success"
    assert entry["status"]["completed"] is True
    assert [name for name, _ in entry["status"]["messages"]] == [
        "execution_start",
        "execution_cached",
        "execution_success",
    ]


def story(client: Client, prompt_id: str) -> list[str]:
    """What was told, in short words, repeated states aside."""
    words = []
    for message in client.texts(prompt_id):
        data: dict[str, Any] = message["data"]
        match message["type"]:
            case "executing":
                words.append(f"executing {data['node']}")
            case "progress":
                words.append(f"progress {data['node']} {data['value']}/{data['max']}")
            case "executed":
                words.append(f"executed {data['node']}")
            case "progress_state":
                pass
            case name:
                words.append(name)
    return words


async def test_messages_come_in_comfyuis_order(shared_server: ServerProcess) -> None:
    async with connect(shared_server.url) as client:
        accepted = await client.submit(txt2img(seed=12, steps=3))
        await client.end_of(accepted["prompt_id"])
    words = story(client, accepted["prompt_id"])
    assert words[:2] == ["execution_start", "execution_cached"]
    assert words[-2:] == ["execution_success", "executing None"]
    assert sorted(words[2:7]) == [f"executing {node}" for node in "34567"] or (
        sorted(words[2:6]) == [f"executing {node}" for node in "4567"]
    )
    assert words[words.index("executing 3") :] == [
        "executing 3",
        "progress 3 1/3",
        "progress 3 2/3",
        "progress 3 3/3",
        "executing 8",
        "executing 9",
        "executed 9",
        "execution_success",
        "executing None",
    ]


async def test_progress_state_names_every_node_and_ends_finished(
    shared_server: ServerProcess,
) -> None:
    async with connect(shared_server.url) as client:
        accepted = await client.submit(txt2img(seed=13, steps=2))
        await client.end_of(accepted["prompt_id"])
    states = [m for m in client.texts(accepted["prompt_id"]) if m["type"] == "progress_state"]
    last = states[-1]["data"]["nodes"]
    assert set(last) == set("3456789")
    assert all(node["state"] == "finished" for node in last.values())
    assert last["3"] == {
        "value": 2,
        "max": 2,
        "state": "finished",
        "node_id": "3",
        "prompt_id": accepted["prompt_id"],
        "display_node_id": "3",
        "parent_node_id": None,
        "real_node_id": "3",
    }


async def test_the_queue_count_rises_and_falls_around_a_run(shared_server: ServerProcess) -> None:
    async with connect(shared_server.url) as client:
        entry = await client.run(txt2img(seed=14, steps=1))
    assert entry["status"]["completed"]
    counts = [
        message["data"]["status"]["exec_info"]["queue_remaining"]
        for message in client.messages
        if isinstance(message, dict) and message["type"] == "status"
    ]
    assert counts[0] == 0
    assert counts[-1] == 0
    assert max(counts) == 1
    kinds = [m["type"] for m in client.messages if isinstance(m, dict)]
    assert kinds[-3:] == ["execution_success", "status", "executing"]


async def test_previews_come_once_per_step_after_their_progress(
    shared_server: ServerProcess,
) -> None:
    async with connect(shared_server.url) as client:
        await client.run(txt2img(seed=15, steps=3))
    previews = [index for index, m in enumerate(client.messages) if isinstance(m, bytes)]
    assert len(previews) == 3
    for index in previews:
        before, frame = client.messages[index - 1], client.messages[index]
        assert isinstance(before, dict)
        assert before["type"] == "progress"
        assert isinstance(frame, bytes)
        assert frame[:8] == b"\x00\x00\x00\x01\x00\x00\x00\x01"
        with Image.open(io.BytesIO(frame[8:])) as picture:
            assert picture.format == "JPEG"
            assert picture.size == (512, 512)


async def test_two_requests_of_one_client_are_told_one_after_another(
    shared_server: ServerProcess,
) -> None:
    async with connect(shared_server.url) as client:
        first = await client.submit(txt2img(seed=16, steps=6))
        second = await client.submit(txt2img(seed=17, steps=1))
        await client.end_of(second["prompt_id"])
    order = [
        message["data"]["prompt_id"]
        for message in client.messages
        if isinstance(message, dict) and message["data"].get("prompt_id")
    ]
    split = order.index(second["prompt_id"])
    assert set(order[:split]) == {first["prompt_id"]}
    assert set(order[split:]) == {second["prompt_id"]}


async def test_a_computed_number_of_steps_grows_the_graph(shared_server: ServerProcess) -> None:
    prompt = txt2img(seed=18)
    prompt["20"] = {
        "class_type": "EmptyImage",
        "inputs": {"width": 3, "height": 8, "batch_size": 1, "color": 0},
    }
    prompt["21"] = {"class_type": "GetImageSize", "inputs": {"image": ["20", 0]}}
    prompt["3"]["inputs"]["steps"] = ["21", 0]
    async with connect(shared_server.url) as client:
        grown = await client.run(prompt)
        plain = await client.run(txt2img(seed=18, steps=3))
        assert await client.picture(grown, "9") != b""
        grown_pixels = Image.open(io.BytesIO(await client.picture(grown, "9"))).tobytes()
        plain_pixels = Image.open(io.BytesIO(await client.picture(plain, "9"))).tobytes()
    assert grown_pixels == plain_pixels
    ends = [m for m in client.messages if isinstance(m, dict) and m["type"] == "progress"]
    assert ends[0]["data"]["max"] == 3


async def test_equal_nodes_run_once_and_both_are_told(shared_server: ServerProcess) -> None:
    prompt = txt2img(seed=19, steps=2)
    prompt["19"] = json.loads(json.dumps(prompt["9"]))
    async with connect(shared_server.url) as client:
        entry = await client.run(prompt)
    assert entry["outputs"]["9"] == entry["outputs"]["19"]
    executed = [
        m["data"]["node"]
        for m in client.messages
        if isinstance(m, dict) and m["type"] == "executed"
    ]
    assert sorted(executed) == ["19", "9"]


async def test_the_graph_of_an_ended_request_can_still_be_looked_at(
    shared_server: ServerProcess,
) -> None:
    async with connect(shared_server.url) as client:
        accepted = await client.submit(txt2img(seed=20, steps=2))
        await client.end_of(accepted["prompt_id"])
    graph = shared_server.get(f"/nodeloom/requests/{accepted['prompt_id']}/graph")
    assert {node["state"] for node in graph["nodes"]} == {"done"}
    assert {node["executor"] for node in graph["nodes"]} <= {"cpu0", "cpu1"}
    assert [node["id"] for node in graph["nodes"]][-2:] == ["8", "9"]
