"""Node classes that put LoRAs on models: the handle's patch set grows, and the file gets a node.

That node looks at the file and has it read while other nodes run; every node that uses the patched
model waits for it (`Lowering.add`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..catalog import Catalog
from ..errors import ModelFileProblem
from ..handles import ModelRef, Patch
from ..types import CLIP, MODEL
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import FileChoices, InputSpec, NodeSchema, combo, number, ports, socket

LORAS: Final = FileChoices(kind="loras")
MAX_PATCHES: Final = 64  # on a model: every node that uses it reads each of them


def strength(name: str) -> InputSpec:
    return number(name, default=1.0, min=-100.0, max=100.0, step=0.01)


class LoraClass(NodeClass):
    """What the classes share: the file is looked at before anything runs."""

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        if "lora_name" not in literals:
            return {}
        try:
            catalog.file(LORAS.kind, literals["lora_name"])
        except ModelFileProblem as problem:
            return {"lora_name": problem.message}
        return {}


class LoraLoader(LoraClass):
    """A LoRA on a denoiser and its text encoder, each at a strength of its own."""

    schema = NodeSchema(
        class_type="LoraLoader",
        display_name="Load LoRA",
        category="loaders",
        inputs=(
            socket("model", MODEL),
            socket("clip", CLIP),
            combo("lora_name", LORAS, {}),
            strength("strength_model"),
            strength("strength_clip"),
        ),
        outputs=ports(MODEL=MODEL, CLIP=CLIP),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        node.require("lora_name", "strength_model", "strength_clip")
        return patched(node, {"model": "strength_model", "clip": "strength_clip"})


class LoraLoaderModelOnly(LoraClass):
    """A LoRA on a denoiser."""

    schema = NodeSchema(
        class_type="LoraLoaderModelOnly",
        display_name="LoraLoaderModelOnly",
        category="loaders",
        inputs=(
            socket("model", MODEL, is_bare=True),
            combo("lora_name", LORAS, None),
            strength("strength_model"),
        ),
        outputs=ports(MODEL=MODEL),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        node.require("lora_name", "strength_model")
        return patched(node, {"model": "strength_model"})


def patched(node: Lowering, strengths: Mapping[str, str]) -> tuple[Value, ...]:
    """The models of the inputs named first, each patched at the strength named second.

    At strength 0 a model stays what it is, and where all are 0 the file is not looked at. Raises:
    InputRefused: the file is not there, or a model has too many already.
    """
    models = {name: node.handle(name) for name in strengths}
    given = {name: node.number(strength) for name, strength in strengths.items()}
    if not any(given.values()):
        return tuple(models.values())
    try:
        file = node.catalog.file(LORAS.kind, node.text("lora_name"))
    except ModelFileProblem as problem:
        raise node.refusal("lora_name", problem.message) from problem
    node.add_patch(file)
    added = {name: Patch(file=file, strength=given[name]) for name in models if given[name]}
    return tuple(
        model.on(with_patches(node, name, model.ref, added[name])) if name in added else model
        for name, model in models.items()
    )


def with_patches(node: Lowering, name: str, ref: ModelRef, *added: Patch) -> ModelRef:
    """The model of input `name` with patches behind its own. Raises: InputRefused: too many."""
    patches = (*ref.patches, *added)
    if len(patches) > MAX_PATCHES:
        reason = f"{len(patches)} LoRAs on a model are too many: {MAX_PATCHES} are possible"
        raise node.refusal(name, reason)
    return msgspec.structs.replace(ref, patches=patches)
