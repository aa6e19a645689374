"""Node classes that make conditionings of texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from ..catalog import Catalog
from ..errors import ModelFileProblem
from ..handles import CLIP_LAYER, FileIdentity
from ..prompt_text import embedding_names, without_commas
from ..types import CLIP, CONDITIONING
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import NodeSchema, integer, ports, socket, text

MAX_EMBEDDINGS: Final = 64  # different ones in a text: each is looked for on disk
SAFE_SUFFIXES: Final = frozenset({".safetensors", ".sft"})
LOOKED_FOR: Final = ("", ".safetensors", ".pt", ".bin")


class CLIPTextEncode(NodeClass):
    """Words to a conditioning.

    The files of embeddings in the text are part of the node, so it is lowered when the text is
    known. Names without a file are left out of the text, as in ComfyUI.
    """

    schema = NodeSchema(
        class_type="CLIPTextEncode",
        display_name="CLIP Text Encode (Prompt)",
        category="conditioning",
        inputs=(text("text", multiline=True, dynamicPrompts=True), socket("clip", CLIP)),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return embedding_problems(literals, catalog, "text")

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        args = {"text": node.inputs["text"], **embedding_args(node, "text")}
        return node.add("text_encode", args, model=node.model("clip"))


class CLIPSetLastLayer(NodeClass):
    """Chooses the layer that a text encoder gives: -1 is the last."""

    schema = NodeSchema(
        class_type="CLIPSetLastLayer",
        display_name="CLIP Set Last Layer",
        category="conditioning",
        inputs=(
            socket("clip", CLIP, is_bare=True),
            integer("stop_at_clip_layer", default=-1, min=-24, max=-1, step=1),
        ),
        outputs=ports(CLIP=CLIP),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        encoder = node.handle("clip")
        layer = node.integer("stop_at_clip_layer")
        return (encoder.on(encoder.ref.with_option(CLIP_LAYER, layer)),)


def embedding_args(node: Lowering, *names: str) -> dict[str, str]:
    """The arguments that name the files of embeddings in the texts of these inputs.

    Raises: NeedsValue, InputRefused.
    """
    node.require(*names)
    files: dict[str, FileIdentity] = {}
    for name in names:
        try:
            files |= _embeddings(node.text(name), node.catalog)
        except ModelFileProblem as problem:
            raise node.refusal(name, problem.message) from problem
    return {
        f"embedding_{index}": json.dumps([name, file.path, file.size_bytes, file.mtime_ns])
        for index, (name, file) in enumerate(files.items())
    }


def embedding_problems(
    literals: Mapping[str, Any], catalog: Catalog, *names: str
) -> dict[str, str]:
    """Which of these texts name embeddings that can't be used, each with the reason."""
    problems: dict[str, str] = {}
    for name in names:
        try:
            _embeddings(str(literals.get(name, "")), catalog)
        except ModelFileProblem as problem:
            problems[name] = problem.message
    return problems


def _embeddings(words: str, catalog: Catalog) -> dict[str, FileIdentity]:
    """The files of the embeddings that a text names, by name.

    Raises: ModelFileProblem: one would have to be unpickled, or there are too many.
    """
    names = embedding_names(words)
    if len(names) > MAX_EMBEDDINGS:
        raise ModelFileProblem(
            f"the text names {len(names)} embeddings; {MAX_EMBEDDINGS} are possible"
        )
    found: dict[str, FileIdentity] = {}
    for written in names:
        for name in dict.fromkeys((written, without_commas(written)[0])):
            file = _embedding_file(name, catalog) if name else None
            if file is not None:
                found[name] = file
                break
    return found


def _embedding_file(name: str, catalog: Catalog) -> FileIdentity | None:
    for suffix in LOOKED_FOR:
        try:
            file = catalog.file("embeddings", name + suffix)
        except ModelFileProblem:
            continue
        if PurePosixPath(file.path).suffix.lower() not in SAFE_SUFFIXES:
            raise ModelFileProblem(
                f"embedding {name + suffix}: it would have to be unpickled, which can run code; "
                "convert it to safetensors",
                name=name,
            )
        return file
    return None
