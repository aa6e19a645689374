"""Where model files lie: ComfyUI's folders, and what `extra_model_paths.yaml` adds to them.

Names of model files are relative to the folders of their kind. Links inside these folders are
followed: whoever owns the folders has laid them. Source: spec comfyui-api/api.md, section 10.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

from ..runtime.config import DemoModels, Settings
from ..runtime.errors import SettingsProblem
from .demo_models import KINDS, demo_models_folder
from .files import UnsafeName, check_name

MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 12

_WEIGHTS: Final = frozenset(
    (".safetensors", ".sft", ".ckpt", ".pt", ".pt2", ".pth", ".bin", ".pkl")
)
_ANY: Final[frozenset[str]] = frozenset()

# kind -> folders below the base directory, in ComfyUI's order; `output/...` holds what nodes saved.
_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "checkpoints": ("models/checkpoints", "output/checkpoints"),
    "configs": ("models/configs",),
    "loras": ("models/loras", "output/loras"),
    "vae": ("models/vae", "output/vae"),
    "text_encoders": ("models/text_encoders", "models/clip", "output/clip"),
    "diffusion_models": ("models/unet", "models/diffusion_models", "output/diffusion_models"),
    "clip_vision": ("models/clip_vision",),
    "style_models": ("models/style_models",),
    "embeddings": ("models/embeddings",),
    "diffusers": ("models/diffusers",),
    "vae_approx": ("models/vae_approx",),
    "controlnet": ("models/controlnet", "models/t2i_adapter"),
    "gligen": ("models/gligen",),
    "upscale_models": ("models/upscale_models",),
    "latent_upscale_models": ("models/latent_upscale_models",),
    "custom_nodes": ("custom_nodes",),
    "hypernetworks": ("models/hypernetworks",),
    "photomaker": ("models/photomaker",),
    "classifiers": ("models/classifiers",),
    "model_patches": ("models/model_patches",),
    "audio_encoders": ("models/audio_encoders",),
}
_SUFFIXES: Final = {"configs": frozenset((".yaml",)), "custom_nodes": _ANY, "classifiers": _ANY}
_OLD_NAMES: Final = {"unet": "diffusion_models", "clip": "text_encoders"}


class ModelPaths:
    """The folders of every kind of model file, in order of precedence."""

    def __init__(self, folders: Mapping[str, tuple[Path, ...]]) -> None:
        self._folders = dict(folders)

    @classmethod
    def of(cls, settings: Settings) -> ModelPaths:
        """ComfyUI's folders below the base directory, its own yaml file there, and named ones.

        Raises: SettingsProblem: a yaml file can't be read or has another shape.
        """
        base = settings.base_directory
        folders = {kind: [base / name for name in names] for kind, names in _FOLDERS.items()}
        for kind, names in _FOLDERS.items():
            for place, name in enumerate(names):
                if name.startswith("output/"):
                    folders[kind][place] = settings.output_directory / name.removeprefix("output/")
        own = base / "extra_model_paths.yaml"
        files = (own, *settings.extra_model_paths_config)
        for file in files if own.is_file() else files[1:]:
            for kind, path, is_default in _read_extra(file):
                known = folders.setdefault(kind, [])
                if path in known:
                    known.remove(path)
                known.insert(0 if is_default else len(known), path)
        paths = cls({kind: tuple(found) for kind, found in folders.items()})
        return paths.with_demo_models() if paths.wants_demo_models(settings.demo_models) else paths

    def wants_demo_models(self, choice: DemoModels) -> bool:
        """Whether the models that ship with nodeloom belong to these folders."""
        if choice is DemoModels.AUTO:
            return not any(self.names(kind) for kind in ("checkpoints", "diffusion_models"))
        return choice is DemoModels.ON

    def with_demo_models(self) -> ModelPaths:
        """These folders, then those of the models that ship with nodeloom."""
        more = {kind: (*self._folders[kind], demo_models_folder() / kind) for kind in KINDS}
        return ModelPaths(self._folders | more)

    @property
    def has_demo_models(self) -> bool:
        """Whether the models that ship with nodeloom are among these."""
        return demo_models_folder() / KINDS[0] in self._folders[KINDS[0]]

    def kinds(self) -> list[str]:
        """The kinds, in ComfyUI's order, then those that yaml files brought."""
        return list(self._folders)

    def folders(self, kind: str) -> tuple[Path, ...]:
        """The folders of one kind. Raises: KeyError."""
        return self._folders[kind]

    def names(self, kind: str) -> tuple[str, ...]:
        """Relative names of the kind's files, sorted; hidden ones left out. Raises: KeyError."""
        suffixes = _SUFFIXES.get(kind, _WEIGHTS)
        found: set[str] = set()
        for folder in self._folders[kind]:
            for name in _walk(folder, suffixes):
                found.add(name)
                if len(found) >= MAX_FILES:
                    return tuple(sorted(found))
        return tuple(sorted(found))

    def find(self, kind: str, name: str) -> Path | None:
        """The first file of that name, or None.

        Raises: KeyError: no such kind. UnsafeName: the name leaves its folder.
        """
        check_name(name)
        path = Path(name)
        if not name or path.is_absolute() or ".." in path.parts:
            raise UnsafeName("a model's name may not leave its folder", name=name)
        for folder in self._folders[kind]:
            try:
                if (folder / path).is_file():
                    return folder / path
            except OSError as problem:
                raise UnsafeName(f"not a usable name: {problem.strerror}", name=name) from problem
        return None


def _walk(folder: Path, suffixes: frozenset[str]) -> Iterator[str]:
    """Relative names below `folder`; a folder reached twice over links is read once."""
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        relative = os.path.relpath(place, folder)
        depth = 0 if relative == "." else relative.count(os.sep) + 1
        real = os.path.realpath(place)
        if real in seen or depth > MAX_DEPTH:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            suffix = os.path.splitext(name)[1].lower()
            if not name.startswith(".") and (not suffixes or suffix in suffixes):
                yield name if relative == "." else f"{relative}/{name}"


def _read_extra(file: Path) -> Iterator[tuple[str, Path, bool]]:
    """(kind, folder, is_default) of every line of an `extra_model_paths.yaml`."""
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise SettingsProblem(f"model paths {file}: {problem}") from problem
    if not isinstance(loaded, dict):
        raise SettingsProblem(f"model paths {file}: must be a mapping of sections")
    for title, section in loaded.items():
        if section is None:
            continue
        if not isinstance(section, dict):
            raise SettingsProblem(f"model paths {file}, section {title}: must be a mapping")
        yield from _read_section(file, str(title), section)


def _read_section(
    file: Path, title: str, section: dict[object, object]
) -> Iterator[tuple[str, Path, bool]]:
    base = file.absolute().parent
    given = section.get("base_path")
    if given is not None:
        base /= Path(os.path.expandvars(str(given))).expanduser()
    is_default = bool(section.get("is_default", False))
    for key, value in section.items():
        if key in ("base_path", "is_default") or value is None:
            continue
        if not isinstance(value, str):
            raise SettingsProblem(f"model paths {file}, section {title}, key {key}: must be text")
        kind = _OLD_NAMES.get(str(key), str(key))
        for line in value.split("\n"):
            if line.strip():
                yield kind, (base / Path(line.strip()).expanduser()), is_default
