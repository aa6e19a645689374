"""object_info, models, system_stats and the like, against recordings of ComfyUI 0.8.0."""

from __future__ import annotations

import os
from typing import Any

from nodeloom.runtime.config import Settings
from PIL import Image


async def test_one_class_is_described_as_recorded(client: Any) -> None:
    answer = await (await client.get("/object_info/CLIPTextEncode")).json()
    info = answer["CLIPTextEncode"]
    # recorded from ComfyUI 0.8.0: object_info, without its prose
    keys = "input input_order output output_is_list output_name name display_name description "
    keys += "python_module category output_node"
    assert list(info) == keys.split()
    assert info["output"] == info["output_name"] == ["CONDITIONING"]
    assert info["display_name"] == "CLIP Text Encode (Prompt)"
    assert info["input"]["required"]["text"][1]["dynamicPrompts"] is True
    assert info["input_order"] == {"required": ["text", "clip"]}


async def test_an_unknown_class_is_an_empty_object(client: Any) -> None:
    answer = await client.get("/object_info/NoSuchNode")
    assert (answer.status, await answer.json()) == (200, {})


async def test_combos_show_the_files_of_the_moment(client: Any, server_settings: Settings) -> None:
    async def choices(class_type: str, name: str) -> object:
        info = await (await client.get("/object_info")).json()
        return info[class_type]["input"]["required"][name][0]

    assert await choices("CheckpointLoaderSimple", "ckpt_name") == []
    (server_settings.models_directory / "checkpoints" / "m.safetensors").touch()
    Image.new("RGB", (8, 8)).save(server_settings.input_directory / "b.png")
    (server_settings.input_directory / "note.txt").touch()
    (server_settings.input_directory / ".hidden.png").touch()
    assert await choices("CheckpointLoaderSimple", "ckpt_name") == ["m.safetensors"]
    assert await choices("LoadImage", "image") == ["b.png"]


async def test_files_of_a_folder_are_listed_newest_first(
    client: Any, server_settings: Settings
) -> None:
    for age, name in enumerate(("new.png", "note.txt", "old.webp", ".hidden.part")):
        file = server_settings.output_directory / name
        file.touch()
        os.utime(file, (1000 - age, 1000 - age))
    (server_settings.output_directory / "folder").mkdir()
    (server_settings.output_directory / "loop").symlink_to("loop")
    answer = await client.get("/internal/files/output")
    assert await answer.json() == ["new.png", "note.txt", "old.webp"]
    # recorded from ComfyUI 0.8.0: info_endpoints
    refused = await client.get("/internal/files/nosuch")
    assert (refused.status, await refused.json()) == (400, {"error": "Invalid directory type"})
    assert (await client.get("/api/internal/files/output")).status == 404


async def test_models_and_embeddings_are_listed(client: Any, server_settings: Settings) -> None:
    for name in ("loras/a.safetensors", "loras/sub/b.pt", "embeddings/e.safetensors"):
        file = server_settings.models_directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert (await (await client.get("/models")).json())[:3] == ["checkpoints", "configs", "loras"]
    loras = await (await client.get("/models/loras")).json()
    assert loras == ["a.safetensors", "sub/b.pt"]
    assert await (await client.get("/embeddings")).json() == ["e"]
    for kind in ("nosuch", "unet", "clip"):
        answer = await client.get(f"/models/{kind}")
        assert (answer.status, await answer.read()) == (404, b"")


async def test_system_stats_have_the_recorded_fields(client: Any) -> None:
    stats = await (await client.get("/system_stats")).json()
    # recorded from ComfyUI 0.8.0 on a CPU
    system = "os ram_total ram_free comfyui_version required_frontend_version "
    system += "installed_templates_version required_templates_version python_version "
    system += "pytorch_version embedded_python argv"
    device = "name type index vram_total vram_free torch_vram_total torch_vram_free"
    assert list(stats["system"]) == system.split()
    assert stats["system"]["comfyui_version"] == "0.8.0"
    (cpu,) = stats["devices"]
    assert list(cpu) == device.split()
    assert (cpu["name"], cpu["type"], cpu["index"]) == ("cpu", "cpu", None)
    assert cpu["vram_total"] == stats["system"]["ram_total"] > 0


async def test_features_are_the_recorded_ones(client: Any) -> None:
    assert await (await client.get("/features")).json() == {
        "supports_preview_metadata": True,
        "max_upload_size": 104857600,
        "extension": {"manager": {"supports_v4": True}},
    }


async def test_a_server_without_executors_is_alive_but_not_ready(client: Any) -> None:
    assert (await client.get("/healthz")).status == 200
    assert (await client.get("/readyz")).status == 503
    assert await (await client.get("/nodeloom/executors")).json() == []
