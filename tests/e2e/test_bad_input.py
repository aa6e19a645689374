"""Bad input is refused with node, field and reason; the server and other requests go on."""

from __future__ import annotations

import struct
import urllib.error
import urllib.request
import zlib
from pathlib import Path

import pytest
from kit.cluster import Json, ServerProcess, connect
from kit.prompts import txt2img


def problems(answer: Json, node: str) -> list[Json]:
    return answer["node_errors"][node]["errors"]


def changed(node: str, **inputs: object) -> Json:
    prompt = txt2img(steps=1)
    prompt[node]["inputs"] |= inputs
    return prompt


def without(node: str, name: str) -> Json:
    prompt = txt2img(steps=1)
    del prompt[node]["inputs"][name]
    return prompt


@pytest.mark.parametrize(
    ("prompt", "node", "kind", "field"),
    [
        (without("3", "seed"), "3", "required_input_missing", "seed"),
        (changed("3", steps="many"), "3", "invalid_input_type", "steps"),
        (changed("3", steps=0), "3", "value_smaller_than_min", "steps"),
        (changed("3", cfg=101), "3", "value_bigger_than_max", "cfg"),
        (changed("3", sampler_name="magic"), "3", "value_not_in_list", "sampler_name"),
        (changed("4", ckpt_name="missing.safetensors"), "4", "value_not_in_list", "ckpt_name"),
        (changed("4", ckpt_name="../../secret"), "4", "value_not_in_list", "ckpt_name"),
        (changed("8", samples=["6", 0]), "8", "return_type_mismatch", "samples"),
        (changed("9", images=["8"]), "9", "bad_linked_input", "images"),
    ],
)
def test_a_wrong_input_is_named(
    shared_server: ServerProcess, prompt: Json, node: str, kind: str, field: str
) -> None:
    status, answer = shared_server.post("/prompt", {"prompt": prompt})
    assert status == 400
    assert answer["error"]["type"] == "prompt_outputs_failed_validation"
    problem = problems(answer, node)[0]
    assert problem["type"] == kind
    assert problem["extra_info"]["input_name"] == field
    assert field in problem["details"] or problem["message"]


def test_an_unknown_class_is_named(shared_server: ServerProcess) -> None:
    status, answer = shared_server.post(
        "/prompt", {"prompt": {"7": {"class_type": "Nope", "inputs": {}}}}
    )
    assert status == 400
    assert answer["error"]["details"] == "Node ID '#7'"
    assert "Nope" in answer["error"]["message"]


def test_a_cycle_is_refused_and_named(shared_server: ServerProcess) -> None:
    prompt = txt2img()
    prompt["10"] = {
        "class_type": "VAEEncode",
        "inputs": {"pixels": ["8", 0], "vae": ["4", 2]},
    }
    prompt["3"]["inputs"]["latent_image"] = ["10", 0]
    status, answer = shared_server.post("/prompt", {"prompt": prompt})
    assert status == 400
    assert answer["error"]["type"] == "prompt_outputs_failed_validation"
    assert answer["node_errors"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", None),
        (b"[]", "no_prompt"),
        (b"{}", "no_prompt"),
        (b'{"prompt": {}}', "prompt_no_outputs"),
        (b'{"prompt": []}', None),
        (b'{"prompt": {"1": 5}}', None),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
        (b"\xff\xfe", None),
    ],
)
def test_a_malformed_body_is_refused(
    shared_server: ServerProcess, body: bytes, kind: str | None
) -> None:
    status, answer = shared_server.post("/prompt", body)
    assert status == 400
    assert answer["error"]["message"]
    if kind is not None:
        assert answer["error"]["type"] == kind


def _bad_checkpoint(server: ServerProcess, name: str, data: bytes) -> Json:
    folder = server.base / "models" / "checkpoints"
    (folder / name).write_bytes(data)
    status, answer = server.post("/prompt", {"prompt": changed("4", ckpt_name=name)})
    (folder / name).unlink()
    assert status == 400
    return problems(answer, "4")[0]


def test_a_truncated_checkpoint_is_refused_by_name(
    shared_server: ServerProcess, checkpoint: Path
) -> None:
    whole = checkpoint.read_bytes()
    problem = _bad_checkpoint(shared_server, "cut.safetensors", whole[: len(whole) // 2])
    assert "ckpt_name" in problem["details"]
    assert "truncated" in problem["details"]


def test_a_pickled_checkpoint_is_refused_by_name(shared_server: ServerProcess) -> None:
    problem = _bad_checkpoint(shared_server, "old.ckpt", b"PK\x03\x04" + b"\0" * 100)
    assert "ckpt_name" in problem["details"]
    assert "pickl" in problem["details"]


def _bomb() -> bytes:
    """A small PNG file that claims 60000 x 60000 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


async def test_an_image_bomb_fails_its_own_request_only(shared_server: ServerProcess) -> None:
    (shared_server.base / "input" / "bomb.png").write_bytes(_bomb())
    bomb = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "bomb.png"}},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }
    status, answer = shared_server.post("/prompt", {"prompt": bomb})
    if status == 400:
        assert "image" in problems(answer, "1")[0]["details"]
    else:
        async with connect(shared_server.url) as client:
            entry = await client.run(bomb)
        name, data = entry["status"]["messages"][-1]
        assert (name, data["node_id"], data["node_type"]) == ("execution_error", "1", "LoadImage")
        assert "bomb.png" in data["exception_message"]
    async with connect(shared_server.url) as client:
        entry = await client.run(txt2img(seed=31, steps=1))
    assert entry["status"]["completed"]


@pytest.mark.parametrize(
    "query",
    [
        "filename=../../etc/passwd",
        "filename=%2e%2e%2fx",
        "filename=/etc/passwd",
        "filename=x.png&subfolder=../..",
        "filename=x.png&type=elsewhere",
    ],
)
def test_names_cannot_leave_their_folder(shared_server: ServerProcess, query: str) -> None:
    status = _status(shared_server, "/view?" + query)
    assert status in (400, 403, 404)


@pytest.mark.parametrize("prefix", ["../../x", "/x", "a/../../x", "..\\x"])
def test_a_prefix_cannot_leave_the_output_folder(shared_server: ServerProcess, prefix: str) -> None:
    status, answer = shared_server.post("/prompt", {"prompt": changed("9", filename_prefix=prefix)})
    assert status == 400
    problem = problems(answer, "9")[0]
    assert problem["extra_info"]["input_name"] == "filename_prefix"
    assert "leaves the output folder" in problem["details"]


async def test_a_computed_prefix_cannot_leave_the_output_folder(
    shared_server: ServerProcess,
) -> None:
    prompt = changed("9", filename_prefix=["40", 0])
    prompt["40"] = {"class_type": "PrimitiveString", "inputs": {"value": "../../x"}}
    async with connect(shared_server.url) as client:
        entry = await client.run(prompt)
    name, data = entry["status"]["messages"][-1]
    assert (name, data["node_id"]) == ("execution_error", "9")
    assert "leaves the folder" in data["exception_message"]
    assert not list(shared_server.base.parent.glob("x*.png"))


def test_a_body_over_the_limit_is_refused(shared_server: ServerProcess) -> None:
    status, answer = shared_server.post("/prompt", b" " * (101 * 1024 * 1024))
    assert status == 413
    assert "104857600" in str(answer)


def test_a_foreign_origin_is_refused(shared_server: ServerProcess) -> None:
    assert _status(shared_server, "/prompt", {"Origin": "http://evil.example"}) == 403
    assert _status(shared_server, "/prompt", {"Origin": shared_server.url}) == 200


async def test_the_server_still_draws_after_all_that(shared_server: ServerProcess) -> None:
    async with connect(shared_server.url) as client:
        entry = await client.run(txt2img(seed=32, steps=1))
    assert entry["status"]["completed"]


def _status(server: ServerProcess, path: str, headers: dict[str, str] | None = None) -> int:
    request = urllib.request.Request(server.url + path, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return int(refused.code)
