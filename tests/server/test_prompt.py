"""POST /prompt: what is accepted, stored and refused. No executor is needed for that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nodeloom.runtime.config import PreviewMethod, Settings
from nodeloom.server.app import Front
from nodeloom.server.routes.prompt import preview_method
from PIL import Image

DRAW = {
    "1": {
        "class_type": "EmptyImage",
        "inputs": {"width": "16", "height": 16, "batch_size": 1, "color": 1},
        "_meta": {"title": "white"},
    },
    "2": {"class_type": "SaveImage", "inputs": {"filename_prefix": "a", "images": ["1", 0]}},
}


async def post(client: Any, **body: object) -> Any:
    return await client.post("/prompt", json={"prompt": DRAW} | body)


async def refused(client: Any, **body: object) -> dict[str, Any]:
    answer = await post(client, **body)
    assert answer.status == 400
    told: dict[str, Any] = await answer.json()
    assert told["node_errors"] == {}
    assert set(told["error"]) == {"type", "message", "details", "extra_info"}
    return told["error"]


async def test_an_accepted_prompt_waits_in_the_queue_as_validated(client: Any) -> None:
    extra = {
        "extra_pnginfo": {"workflow": {"id": "w"}},
        "auth_token_comfy_org": "secret",
        "api_key_comfy_org": "secret",
        "mine": 5,
    }
    answer = await post(client, client_id="me", prompt_id="p", extra_data=extra)
    assert answer.status == 200
    assert await answer.json() == {"prompt_id": "p", "number": 0, "node_errors": {}}
    queue = await (await client.get("/queue")).json()
    assert queue["queue_running"] == []
    ((number, prompt_id, prompt, kept, roots),) = queue["queue_pending"]
    assert (number, prompt_id, roots) == (0, "p", ["2"])
    assert prompt["1"]["inputs"]["width"] == 16  # converted, as ComfyUI stores it
    assert prompt["1"]["_meta"] == {"title": "white"}
    created = kept.pop("create_time")
    assert isinstance(created, int)
    pnginfo = {"workflow": {"id": "w"}}
    assert kept == {"extra_pnginfo": pnginfo, "mine": 5, "client_id": "me"}
    remaining = await (await client.get("/prompt")).json()
    assert remaining == {"exec_info": {"queue_remaining": 1}}


async def test_an_accepted_prompt_is_on_disk_when_the_answer_comes(
    client: Any, front: Front
) -> None:
    await post(client, prompt_id="kept", extra_data={"api_key_comfy_org": "secret"})
    await post(client, prompt_id="gone")
    await front.coordinator.delete_pending(["gone"])  # type: ignore[list-item]
    (stored,) = await front.coordinator._store.unfinished()
    assert stored.request_id == "kept"
    assert json.loads(stored.hidden["prompt"])["1"]["inputs"]["width"] == 16
    assert "secret" not in repr(stored)


async def test_numbers_count_up_and_front_goes_below(client: Any) -> None:
    numbers = []
    for body in ({}, {"front": True}, {"number": 3}, {"number": "0.5"}, {"front": False}):
        answer = await post(client, **body)
        numbers.append((await answer.json())["number"])
    assert numbers == [0, -1, 3.0, 0.5, 2]
    assert isinstance(numbers[2], float)


async def test_a_refused_prompt_advances_the_counter(client: Any) -> None:
    answer = await client.post("/prompt", json={"prompt": {}})
    assert answer.status == 400
    assert (await (await post(client)).json())["number"] == 1


@pytest.mark.parametrize(
    ("given", "prompt_id"), [(12345, "12345"), (None, "None"), ("", ""), ("a/b", "a/b")]
)
async def test_a_chosen_id_becomes_text(client: Any, given: object, prompt_id: str) -> None:
    answer = await post(client, prompt_id=given)
    assert (await answer.json())["prompt_id"] == prompt_id


async def test_an_id_of_its_own_is_a_uuid(client: Any) -> None:
    prompt_id = (await (await post(client)).json())["prompt_id"]
    assert len(prompt_id) == 36
    assert prompt_id.count("-") == 4


async def test_a_second_live_request_under_an_id_is_refused(client: Any) -> None:
    assert (await post(client, prompt_id="p")).status == 200
    error = await refused(client, prompt_id="p")
    assert error["type"] == "duplicate_prompt_id"
    assert "'p'" in error["message"]


async def test_a_full_queue_answers_429(serve: Any) -> None:
    async with serve(max_queue=2) as client:
        assert (await post(client)).status == (await post(client)).status == 200
        answer = await post(client)
        assert answer.status == 429
        error = (await answer.json())["error"]
        assert error["type"] == "admission_rejected"
        assert "2" in error["message"]
        assert (await (await client.get("/prompt")).json())["exec_info"]["queue_remaining"] == 2


@pytest.mark.parametrize("body", [b"[1]", b"{}", b'{"client_id": "x"}', b"5", b"null", b'"text"'])
async def test_a_body_without_a_prompt_has_comfyui_s_words(client: Any, body: bytes) -> None:
    answer = await client.post("/prompt", data=body)
    assert answer.status == 400
    words = {"message": "No prompt provided", "details": "No prompt provided"}
    error = {"type": "no_prompt", "extra_info": {}} | words
    assert await answer.json() == {"error": error, "node_errors": {}}


@pytest.mark.parametrize(
    "body",
    [b"{not json", b"", b"\xff\xfe", b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"],
)
async def test_a_body_that_is_no_json_is_refused_as_json(client: Any, body: bytes) -> None:
    answer = await client.post("/prompt", data=body, headers={"Content-Type": "text/plain"})
    assert answer.status == 400
    told = await answer.json()
    assert told["error"]["type"] == "invalid_json"
    assert told["node_errors"] == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", None),
        ("prompt", [1, 2]),
        ("prompt", "text"),
        ("prompt", {"1": "text"}),
        ("prompt", {"1": None}),
        ("extra_data", None),
        ("extra_data", []),
        ("extra_data", {"extra_pnginfo": 5}),
        ("extra_data", {"client_id": {}}),
        ("client_id", {}),
        ("client_id", ["a"]),
        ("client_id", "x" * 300),
        ("prompt_id", {}),
        ("prompt_id", ["a"]),
        ("prompt_id", "x" * 300),
        ("number", "many"),
        ("number", [1]),
        ("number", {}),
        ("number", None),
        ("number", "nan"),
        ("number", "inf"),
        ("partial_execution_targets", "2"),
        ("partial_execution_targets", {}),
        ("partial_execution_targets", [["2"]]),
    ],
)
async def test_a_field_of_another_shape_is_refused(client: Any, field: str, value: object) -> None:
    error = await refused(client, **{field: value})
    assert error["message"]
    assert (await (await client.get("/prompt")).json())["exec_info"]["queue_remaining"] == 0


async def test_a_rejected_graph_names_node_and_input(client: Any) -> None:
    wrong = json.loads(json.dumps(DRAW))
    wrong["1"]["inputs"]["width"] = "wide"
    answer = await post(client, prompt=wrong)
    assert answer.status == 400
    told = await answer.json()
    assert told["error"]["type"] == "prompt_outputs_failed_validation"
    (error,) = told["node_errors"]["1"]["errors"]
    assert error["type"] == "invalid_input_type"
    assert error["extra_info"]["input_name"] == "width"
    assert told["node_errors"]["1"]["class_type"] == "EmptyImage"


async def test_a_number_that_json_cannot_hold_is_refused(client: Any) -> None:
    loose = DRAW | {"3": {"class_type": "PrimitiveFloat", "inputs": {"value": float("inf")}}}
    for body in (
        json.dumps({"prompt": loose}),
        json.dumps({"prompt": DRAW, "number": 1})[:-1] + "e999}",
    ):
        answer = await client.post("/prompt", data=body)
        assert answer.status == 400
        assert (await answer.json())["error"]["type"] == "invalid_json"


async def test_valid_outputs_run_beside_broken_ones(client: Any) -> None:
    mixed = json.loads(json.dumps(DRAW))
    mixed["3"] = {"class_type": "SaveImage", "inputs": {"filename_prefix": "b"}}
    answer = await post(client, prompt=mixed)
    assert answer.status == 200
    assert list((await answer.json())["node_errors"]) == ["3"]
    ((*_, roots),) = (await (await client.get("/queue")).json())["queue_pending"]
    assert roots == ["2"]


async def test_targets_choose_the_roots(client: Any) -> None:
    two = json.loads(json.dumps(DRAW))
    two["3"] = {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}
    await post(client, prompt=two, partial_execution_targets=["3", "1", "nosuch"])
    ((*_, roots),) = (await (await client.get("/queue")).json())["queue_pending"]
    assert roots == ["3"]
    error = await refused(client, prompt=two, partial_execution_targets=[])
    assert error["type"] == "prompt_no_outputs"


async def test_a_picture_is_found_by_its_annotated_name_but_not_outside(
    client: Any, server_settings: Settings
) -> None:
    Image.new("RGB", (8, 8)).save(server_settings.output_directory / "x.png")

    def load(name: str) -> dict[str, Any]:
        return {
            "1": {"class_type": "LoadImage", "inputs": {"image": name}},
            "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
        }

    assert (await post(client, prompt=load("x.png [output]"))).status == 200
    for name in ("x.png", "../output/x.png", "/etc/passwd", "x\0.png", "y.png [output]", "[temp]"):
        answer = await post(client, prompt=load(name))
        assert answer.status == 400, name
        assert "1" in (await answer.json())["node_errors"]


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ({}, "latent2rgb"),
        ({"preview_method": "none"}, "none"),
        ({"preview_method": "taesd"}, "taesd"),
        ({"preview_method": "default"}, "latent2rgb"),
        ({"preview_method": "nonsense"}, "latent2rgb"),
        ({"preview_method": ["none"]}, "latent2rgb"),
    ],
)
def test_a_prompt_may_choose_its_previews(given: dict[str, object], method: str) -> None:
    assert preview_method(given, PreviewMethod.LATENT2RGB) == method
