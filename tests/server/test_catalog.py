"""What the folders say of the model files in them, by kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kit.loras import write_lora
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import Role
from nodeloom.runtime.config import Settings
from nodeloom.runtime.models.weight_files import identify
from nodeloom.server.catalog import FolderCatalog
from nodeloom.server.files import Folders, empty_temp, make_folders
from nodeloom.server.model_paths import ModelPaths
from safetensors.numpy import save_file

VAE = {"decoder.conv_in.weight": np.zeros((8, 4, 3, 3), np.float16)}


@pytest.fixture
def models(server_settings: Settings) -> Path:
    make_folders(server_settings)
    empty_temp(server_settings)
    for kind in ("vae", "upscale_models", "embeddings/sub"):
        (server_settings.base_directory / "models" / kind).mkdir(parents=True, exist_ok=True)
    return server_settings.base_directory / "models"


@pytest.fixture
def catalog(server_settings: Settings, models: Path) -> FolderCatalog:
    return FolderCatalog(ModelPaths.of(server_settings), Folders.of(server_settings))


def test_a_kind_decides_how_a_file_is_looked_at(catalog: FolderCatalog, models: Path) -> None:
    save_file(VAE, models / "vae" / "x.safetensors")
    (models / "upscale_models" / "x.safetensors").symlink_to(models / "vae" / "x.safetensors")
    vae = catalog.part("vae", "x.safetensors")
    upscaler = catalog.part("upscale_models", "x.safetensors")
    assert (vae.family, vae.roles) == ("sd15", frozenset({Role.VAE}))
    assert (upscaler.family, upscaler.roles) == ("upscaler", frozenset({Role.UPSCALER}))
    assert vae.file == upscaler.file


def test_a_file_that_is_written_anew_is_looked_at_anew(
    catalog: FolderCatalog, models: Path
) -> None:
    path = models / "vae" / "x.safetensors"
    save_file(VAE, path)
    assert catalog.part("vae", "x.safetensors").dtype == "float16"
    save_file({name: tensor.astype(np.float32) for name, tensor in VAE.items()}, path)
    assert catalog.part("vae", "x.safetensors").dtype == "float32"


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("vae", "gone.safetensors", "there is no file 'gone.safetensors' in vae"),
        ("vae", "../vae/x.safetensors", "may not leave its folder"),
        ("upscale_models", "4x.pth", "have to be unpickled"),
    ],
)
def test_what_cannot_be_used_is_named(
    catalog: FolderCatalog, models: Path, kind: str, name: str, reason: str
) -> None:
    save_file(VAE, models / "vae" / "x.safetensors")
    (models / "upscale_models" / "4x.pth").write_bytes(b"PK\x03\x04" * 9)
    with pytest.raises(ModelFileProblem, match=reason):
        catalog.part(kind, name)


def test_a_file_in_a_subfolder_has_its_identity(catalog: FolderCatalog, models: Path) -> None:
    path = models / "embeddings" / "sub" / "style.safetensors"
    save_file(VAE, path)
    file = catalog.file("embeddings", "sub/style.safetensors")
    assert (file.path, file.size_bytes) == (str(path.resolve()), path.stat().st_size)


def test_a_lora_is_looked_at_when_it_is_named(catalog: FolderCatalog, models: Path) -> None:
    path = models / "loras" / "style.safetensors"
    write_lora(path)
    assert catalog.file("loras", "style.safetensors") == identify(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelFileProblem, match=r"style\.safetensors.*truncated"):
        catalog.file("loras", "style.safetensors")
    save_file(VAE, path)
    with pytest.raises(ModelFileProblem, match="this is no LoRA"):
        catalog.file("loras", "style.safetensors")
