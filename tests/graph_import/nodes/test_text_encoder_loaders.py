"""Loaders of text encoders: one key for several files in any order, and refusals in words."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from nodeloom.graph_import.catalog import CheckpointInfo
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import FileIdentity, ModelKey, Role
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.nodes.registry import Registry

from ..known_files import CHECKPOINT, KnownFiles, identity, sd15
from ..prompts import Prompt, node, text_to_image

Import = Callable[[Prompt], Graph]
Check = Callable[[Prompt], Validated]
KIND = "text_encoders"
HELD = {
    "l": ("clip_l",),
    "other-l": ("clip_l",),
    "g": ("clip_g",),
    "t5": ("t5xxl",),
    "qwen": ("qwen3_4b",),
    "both": ("clip_l", "clip_g"),
}


@pytest.fixture
def files() -> KnownFiles:
    parts: dict[tuple[str, str], CheckpointInfo | str] = {
        (KIND, name): msgspec.structs.replace(
            sd15(name, frozenset({Role.TEXT_ENCODER})), encoders=encoders
        )
        for name, encoders in HELD.items()
    }
    parts[KIND, "vae"] = sd15("vae", frozenset({Role.VAE}))
    parts[KIND, "broken"] = "the file is truncated"
    return KnownFiles(parts=parts)


def with_loader(loader: dict[str, object]) -> Prompt:
    prompt = text_to_image() | {"c": loader}
    prompt["6"]["inputs"]["clip"] = prompt["7"]["inputs"]["clip"] = ["c", 0]
    return prompt


def single(name: str, type_: str) -> Prompt:
    return with_loader(node("CLIPLoader", clip_name=name, type=type_))


def dual(first: str, second: str, type_: str) -> Prompt:
    return with_loader(node("DualCLIPLoader", clip_name1=first, clip_name2=second, type=type_))


def triple(*names: str) -> Prompt:
    inputs = {f"clip_name{index}": name for index, name in enumerate(names, start=1)}
    return with_loader(node("TripleCLIPLoader", **inputs))


def key_of(graph: Graph) -> ModelKey:
    (key,) = {n.model.key for n in graph.nodes if n.op == "text_encode" and n.model is not None}
    return key


def names_of(key: ModelKey) -> tuple[str, ...]:
    return tuple(file.path.removeprefix("/files/") for file in key.files)


@pytest.mark.parametrize(
    ("prompt", "family", "names"),
    [
        (single("l", "stable_diffusion"), "sd15", ("l",)),
        (single("g", "stable_diffusion"), "sdxl", ("g",)),
        (single("qwen", "lumina2"), "z_image", ("qwen",)),
        (single("qwen", "stable_diffusion"), "z_image", ("qwen",)),
        (single("t5", "sd3"), "sd3", ("t5",)),
        (single("both", "sd3"), "sd3", ("both",)),
        (dual("g", "l", "sdxl"), "sdxl", ("l", "g")),
        (dual("t5", "g", "sd3"), "sd3", ("g", "t5")),
        (dual("t5", "l", "flux"), "flux", ("l", "t5")),
        (triple("t5", "g", "l"), "sd3", ("l", "g", "t5")),
    ],
)
def test_the_type_decides_the_family_and_the_encoders_the_order(
    imported: Import, prompt: Prompt, family: str, names: tuple[str, ...]
) -> None:
    key = key_of(imported(prompt))
    assert (key.role, key.family, key.dtype) == (Role.TEXT_ENCODER, family, "float16")
    assert names_of(key) == names
    assert key.label() == f"{family}/text_encoder:{'+'.join(names)}"


def test_files_in_any_order_are_one_model(imported: Import) -> None:
    assert key_of(imported(triple("l", "g", "t5"))) == key_of(imported(triple("t5", "l", "g")))


def test_every_file_belongs_to_the_models_identity(imported: Import, files: KnownFiles) -> None:
    before = key_of(imported(dual("l", "t5", "flux")))
    changed = files.parts[KIND, "t5"]
    assert isinstance(changed, CheckpointInfo)
    files.parts[KIND, "t5"] = msgspec.structs.replace(changed, file=identity("t5", mtime_ns=2))
    after = key_of(imported(dual("l", "t5", "flux")))
    assert before != after
    assert before.file == after.file


@pytest.mark.parametrize(
    ("prompt", "input_name", "reason"),
    [
        (single("l", "flux2"), "type", "text encoders of type flux2 are not supported yet, only"),
        (dual("l", "t5", "hidream"), "type", "text encoders of type hidream are not supported yet"),
        (single("t5", "stable_diffusion"), "clip_name", "t5 holds t5xxl; type stable_diffusion"),
        (single("l", "lumina2"), "clip_name", "l holds clip_l; type lumina2 takes qwen3_4b"),
        (single("both", "stable_diffusion"), "clip_name", "both holds clip_l and clip_g; type"),
        (single("vae", "sd3"), "clip_name", "vae is a vae, not a text_encoder"),
        (dual("l", "qwen", "flux"), "clip_name2", "qwen holds qwen3_4b; type flux takes clip_l"),
        (dual("t5", "l", "sdxl"), "clip_name1", "t5 holds t5xxl; type sdxl takes clip_l and"),
        (dual("l", "other-l", "sd3"), "clip_name2", "other-l holds clip_l, as l does; each file"),
        (dual("broken", "l", "sd3"), "clip_name1", "the file is truncated"),
        (triple("l", "g", "g"), "clip_name3", "g holds clip_g, as g does; each file must hold"),
    ],
)
def test_what_makes_no_text_encoder_is_refused_by_its_input(
    imported: Import, prompt: Prompt, input_name: str, reason: str
) -> None:
    with pytest.raises(ImportRejected) as caught:
        imported(prompt)
    (problem,) = caught.value.problems
    assert (problem.node_id, problem.extra_info["input_name"]) == ("c", input_name)
    assert problem.details.startswith(f"{input_name} - {reason}")


def test_a_file_that_changed_since_validation_is_refused_by_its_input(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    valid = check(triple("t5", "l", "g"))
    files.parts[KIND, "l"] = files.parts[KIND, "qwen"]
    with pytest.raises(ImportRejected) as caught:
        import_prompt(valid.prompt, valid.roots, registry, files)
    (problem,) = caught.value.problems
    assert problem.details.startswith("clip_name2 - l holds qwen3_4b; type sd3 takes clip_l")


def test_a_checkpoint_without_text_encoders_is_used_with_others(
    imported: Import, files: KnownFiles
) -> None:
    roles = frozenset({Role.DENOISER, Role.VAE})
    files.checkpoints[CHECKPOINT] = sd15(CHECKPOINT, roles)
    assert names_of(key_of(imported(single("l", "stable_diffusion")))) == ("l",)
    with pytest.raises(ImportRejected) as caught:
        imported(text_to_image())
    found = {(p.node_id, p.details) for p in caught.value.problems}
    reason = f"clip - {CHECKPOINT} has no text_encoder"
    assert found == {("6", reason), ("7", reason)}


def test_files_are_pinned_while_a_graph_grows(imported: Import) -> None:
    graph = imported(triple("l", "g", "t5"))
    held: set[FileIdentity] = set(key_of(graph).files)
    assert held == {identity(name) for name in ("l", "g", "t5")}
