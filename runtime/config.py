"""Settings: defaults < config file < environment < flags, read once at start.

Every setting is spelled three ways: the flag `--base-directory`, the variable
`NODELOOM_BASE_DIRECTORY` and the key `base_directory` of the YAML file that `--config` (or
`NODELOOM_CONFIG`) names. Flags that ComfyUI also has keep its spelling.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import yaml

from .errors import SettingsProblem
from .ids import ExecutorId

# Where checkpoints lie if they can: each run of a server has a folder of this prefix there.
SHARED_MEMORY: Final = Path("/dev/shm")
CHECKPOINTS_PREFIX: Final = "nodeloom-checkpoints-"


class PreviewMethod(StrEnum):
    """How a picture in the making is shown; `auto` means latent2rgb, as in ComfyUI."""

    NONE = "none"
    AUTO = "auto"
    LATENT2RGB = "latent2rgb"
    TAESD = "taesd"


class DemoModels(StrEnum):
    """Whether the models that ship with nodeloom are offered; `auto`: if there are no others."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a server can be told. Sizes in bytes where the name says so."""

    listen: str
    port: int
    base_directory: Path
    input_directory: Path
    output_directory: Path
    temp_directory: Path
    user_directory: Path
    extra_model_paths_config: tuple[Path, ...]
    preview_method: PreviewMethod
    preview_size: int
    max_upload_size: float
    enable_cors_header: str | None
    disable_metadata: bool
    executors: int
    threads: int
    strict: bool
    device: str
    model_memory_gb: float
    max_queue: int
    log_level: str
    workflow_directory: Path | None = None
    allow_user_models: bool = False
    latents_cache_gb: float = 0.25
    demo_models: DemoModels = DemoModels.AUTO

    @property
    def models_directory(self) -> Path:
        """ComfyUI's `models` folder."""
        return self.base_directory / "models"

    @property
    def state_directory(self) -> Path:
        """Our own files: the database, the journal, the ledger of saves."""
        return self.user_directory / "nodeloom"

    @property
    def saves_directory(self) -> Path:
        """The ledger that makes saving idempotent."""
        return self.state_directory / "saves"

    @property
    def user_models_directory(self) -> Path:
        """Copies of the Python files that accepted requests run, by content."""
        return self.state_directory / "user_models"

    @property
    def latents_directory(self) -> Path:
        """Latents that requests which opt in to the approximate cache may start from."""
        return self.state_directory / "latents"

    @property
    def max_upload_bytes(self) -> int:
        """The limit of a request's body."""
        return int(self.max_upload_size * 1024 * 1024)


class ExecutorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one executor process is told on its command line, as JSON."""

    executor: ExecutorId
    incarnation: str
    coordinator_endpoint: str
    data_endpoint: str
    device: str
    num_threads: int
    is_strict: bool
    model_memory_bytes: int
    input_directory: Path
    output_directory: Path
    temp_directory: Path
    saves_directory: Path
    is_metadata_disabled: bool
    preview_size: int
    preview_folders: tuple[Path, ...]
    log_level: str
    checkpoint_directory: Path | None = None
    user_model_directory: Path | None = None  # kept Python files; None: no users' models run


class _Option(msgspec.Struct, frozen=True, kw_only=True):
    """How one setting is given: its parser, default and help text."""

    name: str
    kind: str  # str, int, float, bool, path, paths, optional
    default: object
    help: str


def default_base_directory() -> Path:
    """Where models, pictures and state live unless told otherwise."""
    data_home = os.environ.get("XDG_DATA_HOME")
    root = Path(data_home) if data_home else Path.home() / ".local" / "share"
    return root / "nodeloom"


OPTIONS: Final = (
    _Option(name="listen", kind="str", default="127.0.0.1", help="address to listen on"),
    _Option(name="port", kind="int", default=8188, help="port to listen on; 0 picks a free one"),
    _Option(
        name="base_directory",
        kind="path",
        default=None,
        help="a ComfyUI folder: models, input, output, temp and user lie in it",
    ),
    _Option(name="input_directory", kind="path", default=None, help="pictures to read"),
    _Option(name="output_directory", kind="path", default=None, help="pictures that were saved"),
    _Option(name="temp_directory", kind="path", default=None, help="previews; emptied at start"),
    _Option(name="user_directory", kind="path", default=None, help="settings and our database"),
    _Option(
        name="extra_model_paths_config",
        kind="paths",
        default=(),
        help="extra_model_paths.yaml files, as ComfyUI reads them",
    ),
    _Option(
        name="preview_method",
        kind="str",
        default="none",
        help="previews while sampling: none, auto, latent2rgb or taesd",
    ),
    _Option(name="preview_size", kind="int", default=512, help="longest side of previews, pixels"),
    _Option(name="max_upload_size", kind="float", default=100.0, help="largest body, in MB"),
    _Option(
        name="enable_cors_header",
        kind="optional",
        default=None,
        help="allow this origin (* without a value) instead of refusing foreign ones",
    ),
    _Option(
        name="disable_metadata", kind="bool", default=False, help="save pictures without workflow"
    ),
    _Option(name="executors", kind="int", default=0, help="executor processes; 0 chooses"),
    _Option(name="threads", kind="int", default=0, help="CPU threads per executor; 0 chooses"),
    _Option(
        name="strict",
        kind="bool",
        default=False,
        help="bit-for-bit the same pictures alone, beside others, moved or retried",
    ),
    _Option(name="device", kind="str", default="auto", help="cpu, cuda or auto"),
    _Option(
        name="model_memory_gb",
        kind="float",
        default=0.0,
        help="hard limit of loaded weights per executor; 0 chooses",
    ),
    _Option(name="max_queue", kind="int", default=1000, help="requests waiting or running at most"),
    _Option(
        name="workflow_directory",
        kind="path",
        default=None,
        help="the only folder whose Python files may be registered as workflows; they are run",
    ),
    _Option(
        name="allow_user_models",
        kind="bool",
        default=False,
        help="let executors run the models that files in --workflow-directory define",
    ),
    _Option(
        name="latents_cache_gb",
        kind="float",
        default=0.25,
        help="disk space for requests that opt in to the approximate cache; 0: they are refused",
    ),
    _Option(
        name="demo_models",
        kind="str",
        default="auto",
        help="offer the models that ship with nodeloom: on, off, or auto: if there are no others",
    ),
    _Option(name="log_level", kind="str", default="INFO", help="DEBUG, INFO, WARNING or ERROR"),
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag per setting, and `--config`; a flag that is not given leaves no trace."""
    parser.add_argument("--config", help="YAML file with any of these settings")
    for option in OPTIONS:
        flag = "--" + option.name.replace("_", "-")
        common: dict[str, Any] = {"default": argparse.SUPPRESS, "help": option.help}
        if option.kind == "bool":
            parser.add_argument(flag, action="store_const", const=True, **common)
        elif option.kind == "optional":
            parser.add_argument(flag, nargs="?", const="*", metavar="ORIGIN", **common)
        elif option.kind == "paths":
            parser.add_argument(flag, nargs="+", metavar="PATH", **common)
        else:
            parser.add_argument(flag, metavar=option.kind.upper(), **common)


def read_settings(flags: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """Join all sources. Raises: SettingsProblem: names the setting, its source and the reason."""
    given: dict[str, object] = {option.name: option.default for option in OPTIONS}
    config = getattr(flags, "config", None) or environment.get("NODELOOM_CONFIG")
    if config:
        given.update(_read_config_file(Path(config)))
    for option in OPTIONS:
        name = "NODELOOM_" + option.name.upper()
        if name in environment:
            given[option.name] = _parse(option, environment[name], f"variable {name}")
        if hasattr(flags, option.name):
            flag = "--" + option.name.replace("_", "-")
            given[option.name] = _parse(option, getattr(flags, option.name), f"flag {flag}")
    return _complete(given)


def _read_config_file(path: Path) -> dict[str, object]:
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise SettingsProblem(f"config file {path}: {problem}") from problem
    if not isinstance(loaded, dict):
        raise SettingsProblem(f"config file {path}: must be a mapping of settings")
    by_name = {option.name: option for option in OPTIONS}
    given: dict[str, object] = {}
    for raw_name, value in loaded.items():
        name = str(raw_name).replace("-", "_")
        if name not in by_name:
            raise SettingsProblem(f"config file {path}: unknown setting {raw_name!r}")
        given[name] = _parse(by_name[name], value, f"config file {path}, key {raw_name}")
    return given


def _parse(option: _Option, value: object, source: str) -> object:
    """`value` as the setting's type. Raises: SettingsProblem."""
    try:
        if option.kind in ("int", "float"):
            if isinstance(value, bool):
                raise ValueError(f"expected a number, got {value!r}")
            return int(cast(str, value)) if option.kind == "int" else float(cast(str, value))
        if option.kind == "bool":
            return _parse_bool(value)
        if option.kind == "path":
            if not isinstance(value, str) or not value:
                raise ValueError(f"expected a path, got {value!r}")
            return Path(value).expanduser().absolute()
        if option.kind == "paths":
            parts = (
                value.split(os.pathsep) if isinstance(value, str) else cast(Sequence[str], value)
            )
            return tuple(Path(part).expanduser().absolute() for part in parts)
        return None if value is None else str(value)
    except (TypeError, ValueError) as problem:
        raise SettingsProblem(f"{source}: {problem}") from problem


def _parse_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(f"expected true or false, got {value!r}")


def _complete(given: dict[str, object]) -> Settings:
    """Fill in what follows from the rest, and check ranges. Raises: SettingsProblem."""
    base = cast(Path, given["base_directory"] or default_base_directory())
    given["base_directory"] = base
    for kind in ("input", "output", "temp", "user"):
        given[f"{kind}_directory"] = given[f"{kind}_directory"] or base / kind
    for name, words in (("preview_method", PreviewMethod), ("demo_models", DemoModels)):
        try:
            given[name] = words(str(given[name]))
        except ValueError as problem:
            raise SettingsProblem(f"{name} must be one of {', '.join(words)}") from problem
    if given["device"] not in ("auto", "cpu", "cuda"):
        raise SettingsProblem(f"device must be auto, cpu or cuda, not {given['device']!r}")
    given["log_level"] = str(given["log_level"]).upper()
    if given["log_level"] not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise SettingsProblem("log_level must be DEBUG, INFO, WARNING or ERROR")
    if given["allow_user_models"] and given["workflow_directory"] is None:
        raise SettingsProblem("allow_user_models needs workflow_directory, where their files lie")
    limits = {
        "port": (0, 65535),
        "executors": (0, 64),
        "threads": (0, 1024),
        "max_queue": (1, 10**6),
    }
    limits |= {
        "preview_size": (16, 4096),
        "max_upload_size": (1, 10**6),
        "model_memory_gb": (0, 10**6),
        "latents_cache_gb": (0, 10**6),
    }
    for name, (low, high) in limits.items():
        number = cast(float, given[name])
        if not low <= number <= high:
            raise SettingsProblem(f"{name} must be from {low} to {high}, not {number}")
    return Settings(**cast(dict[str, Any], given))
