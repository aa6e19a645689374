"""Model folders as ComfyUI has them, and what extra_model_paths.yaml adds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from nodeloom.runtime.config import Settings
from nodeloom.runtime.errors import SettingsProblem
from nodeloom.server.files import UnsafeName
from nodeloom.server.model_paths import ModelPaths

# recorded from ComfyUI 0.8.0: GET /models
KINDS = [
    "checkpoints",
    "configs",
    "loras",
    "vae",
    "text_encoders",
    "diffusion_models",
    "clip_vision",
    "style_models",
    "embeddings",
    "diffusers",
    "vae_approx",
    "controlnet",
    "gligen",
    "upscale_models",
    "latent_upscale_models",
    "custom_nodes",
    "hypernetworks",
    "photomaker",
    "classifiers",
    "model_patches",
    "audio_encoders",
]


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_the_kinds_are_the_recorded_ones(server_settings: Settings) -> None:
    paths = ModelPaths.of(server_settings)
    assert paths.kinds() == KINDS
    base = server_settings.base_directory
    assert paths.folders("diffusion_models") == (
        base / "models/unet",
        base / "models/diffusion_models",
        base / "output/diffusion_models",
    )


def test_names_are_relative_sorted_and_only_of_model_files(server_settings: Settings) -> None:
    folder = server_settings.models_directory / "checkpoints"
    put(folder, "b.safetensors", "sub/deep/a.ckpt", ".hidden.safetensors", "readme.txt", ".x/c.pt")
    put(server_settings.output_directory / "checkpoints", "saved.safetensors", "b.safetensors")
    names = ModelPaths.of(server_settings).names("checkpoints")
    assert names == ("b.safetensors", "saved.safetensors", "sub/deep/a.ckpt")


def test_links_are_followed_and_loops_end(server_settings: Settings, tmp_path: Path) -> None:
    folder = server_settings.models_directory / "loras"
    put(tmp_path / "elsewhere", "far.safetensors")
    put(folder, "near.safetensors")
    os.symlink(tmp_path / "elsewhere", folder / "disk2")
    os.symlink(folder, folder / "loop")
    names = ModelPaths.of(server_settings).names("loras")
    assert names == ("disk2/far.safetensors", "near.safetensors")


def test_a_missing_folder_is_empty(server_settings: Settings) -> None:
    assert ModelPaths.of(server_settings).names("gligen") == ()


def test_extra_paths_take_base_path_old_names_lines_and_precedence(
    server_settings: Settings, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    put(shared, "ckpt/one.safetensors", "more/two.safetensors", "unets/u.safetensors")
    file = tmp_path / "configs" / "extra.yaml"
    file.parent.mkdir()
    file.write_text(
        "pool:\n"
        "  base_path: ../shared\n"
        "  is_default: true\n"
        "  checkpoints: |\n"
        "    ckpt\n"
        "    more\n"
        "  unet: unets\n"
        "  my_kind: unets\n"
        "empty:\n"
    )
    settings = with_extra(server_settings, file)
    put(settings.models_directory / "checkpoints", "own.safetensors")
    paths = ModelPaths.of(settings)
    assert paths.names("checkpoints") == ("one.safetensors", "own.safetensors", "two.safetensors")
    assert paths.names("diffusion_models") == ("u.safetensors",)
    assert paths.kinds() == [*KINDS, "my_kind"]
    found = paths.find("diffusion_models", "u.safetensors")
    assert found is not None
    assert found.resolve() == (shared / "unets/u.safetensors").resolve()
    assert paths.folders("diffusion_models")[0] == file.parent / "../shared/unets"


def test_without_is_default_extra_folders_come_last(
    server_settings: Settings, tmp_path: Path
) -> None:
    put(tmp_path / "pool", "same.safetensors")
    own = server_settings.models_directory / "vae"
    put(own, "same.safetensors")
    file = tmp_path / "extra.yaml"
    file.write_text("pool:\n  vae: pool\n")
    found = ModelPaths.of(with_extra(server_settings, file)).find("vae", "same.safetensors")
    assert found == own / "same.safetensors"


def test_the_yaml_of_a_comfyui_folder_is_read_unasked(
    server_settings: Settings, tmp_path: Path
) -> None:
    put(tmp_path / "pool", "x.safetensors")
    server_settings.base_directory.mkdir(exist_ok=True)
    yaml = server_settings.base_directory / "extra_model_paths.yaml"
    yaml.write_text(f"pool:\n  base_path: {tmp_path}\n  clip: pool\n")
    assert ModelPaths.of(server_settings).names("text_encoders") == ("x.safetensors",)


@pytest.mark.parametrize("text", ["- a\n", "pool: 5\n", "pool:\n  vae: [a]\n", "a: : b\n", "\x00"])
def test_a_yaml_file_of_another_shape_stops_the_start(
    server_settings: Settings, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "extra.yaml"
    file.write_text(text)
    with pytest.raises(SettingsProblem, match=r"extra\.yaml"):
        ModelPaths.of(with_extra(server_settings, file))


@pytest.mark.parametrize("name", ["", "../x.safetensors", "/etc/passwd", "a/../../b", "a\0", "x\n"])
def test_names_that_leave_their_folder_are_refused(server_settings: Settings, name: str) -> None:
    with pytest.raises(UnsafeName):
        ModelPaths.of(server_settings).find("checkpoints", name)


def test_an_unknown_file_is_not_found(server_settings: Settings) -> None:
    assert ModelPaths.of(server_settings).find("checkpoints", "none.safetensors") is None
    assert ModelPaths.of(server_settings).find("checkpoints", "x" * 255 + "/" + "y" * 255) is None


def with_extra(server_settings: Settings, file: Path) -> Settings:
    fields = {name: getattr(server_settings, name) for name in server_settings.__struct_fields__}
    return Settings(**fields | {"extra_model_paths_config": (file,)})
