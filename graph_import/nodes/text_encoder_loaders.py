"""Node classes that name files of text encoders: one, or several that make one text encoder.

What a file holds its header says; the type that the user names decides the family, and so how the
encoders' vectors are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..catalog import Catalog, CheckpointInfo
from ..errors import ModelFileProblem
from ..handles import ModelKey, ModelRef, Role
from ..text_encoders import CLIP_G, CLIP_L, FAMILY_ENCODERS, QWEN3_4B, T5XXL
from ..types import CLIP, COMBO
from .base import NodeClass
from .lowering import Handle, Lowering, Value
from .schema import FileChoices, InputSpec, NodeSchema, combo, ports

KIND: Final = "text_encoders"
STORED_DTYPE: Final = "float16"  # what CLIP's weights are rounded to, as ComfyUI holds them
SD_CLIP: Final = "stable_diffusion"
CLIP_TYPES: Final = (
    SD_CLIP,
    "stable_cascade",
    "sd3",
    "stable_audio",
    "mochi",
    "ltxv",
    "pixart",
    "cosmos",
    "lumina2",
    "wan",
    "hidream",
    "chroma",
    "ace",
    "omnigen2",
    "qwen_image",
    "hunyuan_image",
    "flux2",
    "ovis",
)
DUAL_TYPES: Final = (
    "sdxl",
    "sd3",
    "flux",
    "hunyuan_video",
    "hidream",
    "hunyuan_image",
    "hunyuan_video_15",
    "kandinsky5",
    "kandinsky5_image",
    "ltxv",
    "newbie",
)
# The family of an encoder alone, by the type that is named: SDXL's is that of the refiner. Z-Image
# has no type of its own; its workflows name one of these.
SINGLE_FAMILIES: Final[Mapping[str, Mapping[str, str]]] = {
    SD_CLIP: {CLIP_L: "sd15", CLIP_G: "sdxl", QWEN3_4B: "z_image"},
    "sd3": {CLIP_L: "sd3", CLIP_G: "sd3", T5XXL: "sd3"},
    "lumina2": {QWEN3_4B: "z_image"},
}
DUAL_FAMILIES: Final = ("sdxl", "sd3", "flux")
DUAL_NAMES: Final = ("clip_name1", "clip_name2")
TRIPLE_NAMES: Final = (*DUAL_NAMES, "clip_name3")

_DEVICE: Final = InputSpec(
    name="device",
    type=COMBO,
    options={"advanced": True},
    choices=("default", "cpu"),
    is_required=False,
)


class CLIPLoader(NodeClass):
    """A text encoder from a file of its own. Where it runs is the executors' business."""

    schema = NodeSchema(
        class_type="CLIPLoader",
        display_name="Load CLIP",
        category="advanced/loaders",
        inputs=(
            combo("clip_name", FileChoices(kind=KIND), None),
            combo("type", CLIP_TYPES, None),
            _DEVICE,
        ),
        outputs=ports(CLIP=CLIP),
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        type_ = literals.get("type")
        if type_ in CLIP_TYPES and type_ not in SINGLE_FAMILIES:
            return {"type": _unsupported(type_, SINGLE_FAMILIES)}
        if "clip_name" not in literals:
            return {}
        try:
            info = _encoder_file(catalog, literals["clip_name"])
            if isinstance(type_, str) and type_ in SINGLE_FAMILIES:
                _single_family(info, literals["clip_name"], type_)
        except ModelFileProblem as problem:
            return {"clip_name": problem.message}
        return {}

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        type_ = node.text("type")
        if type_ not in SINGLE_FAMILIES:
            raise node.refusal("type", _unsupported(type_, SINGLE_FAMILIES))
        name = node.text("clip_name")
        try:
            info = _encoder_file(node.catalog, name)
            family = _single_family(info, name, type_)
        except ModelFileProblem as problem:
            raise node.refusal("clip_name", problem.message) from problem
        return (_handle(family, [info]),)


class DualCLIPLoader(NodeClass):
    """A text encoder of two files, in either order."""

    schema = NodeSchema(
        class_type="DualCLIPLoader",
        display_name="DualCLIPLoader",
        category="advanced/loaders",
        inputs=(
            combo("clip_name1", FileChoices(kind=KIND), None),
            combo("clip_name2", FileChoices(kind=KIND), None),
            combo("type", DUAL_TYPES, None),
            _DEVICE,
        ),
        outputs=ports(CLIP=CLIP),
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        type_ = literals.get("type")
        if type_ in DUAL_TYPES and type_ not in DUAL_FAMILIES:
            return {"type": _unsupported(type_, DUAL_FAMILIES)}
        family = type_ if type_ in DUAL_FAMILIES else None
        names = {name: literals[name] for name in DUAL_NAMES if name in literals}
        return _looked_at(names, family, catalog)[1]

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        type_ = node.text("type")
        if type_ not in DUAL_FAMILIES:
            raise node.refusal("type", _unsupported(type_, DUAL_FAMILIES))
        return (_joined(node, DUAL_NAMES, type_),)


class TripleCLIPLoader(NodeClass):
    """SD3's text encoder of three files, in any order."""

    schema = NodeSchema(
        class_type="TripleCLIPLoader",
        display_name=None,
        category="advanced/loaders",
        python_module="comfy_extras.nodes_sd3",
        inputs=tuple(
            InputSpec(
                name=name,
                type=COMBO,
                options={"multiselect": False},
                choices=FileChoices(kind=KIND),
                is_listed=False,
            )
            for name in TRIPLE_NAMES
        ),
        outputs=ports(CLIP=CLIP),
        is_v3=True,
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        names = {name: literals[name] for name in TRIPLE_NAMES if name in literals}
        return _looked_at(names, "sd3", catalog)[1]

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return (_joined(node, TRIPLE_NAMES, "sd3"),)


NODES: Final = (CLIPLoader, DualCLIPLoader, TripleCLIPLoader)


def _joined(node: Lowering, names: Sequence[str], family: str) -> Handle:
    """The text encoder of the files that these inputs name. Raises: NeedsValue, InputRefused."""
    given = {name: node.text(name) for name in names}
    infos, problems = _looked_at(given, family, node.catalog)
    for name, reason in problems.items():
        raise node.refusal(name, reason)
    return _handle(family, list(infos.values()))


def _looked_at(
    names: Mapping[str, str], family: str | None, catalog: Catalog
) -> tuple[dict[str, CheckpointInfo], dict[str, str]]:
    """What the files are, and which inputs can't be used, each with the reason.

    Args:
        names: the files' names by input.
        family: that they are for; None: it is not known yet.
    """
    taken = None if family is None else FAMILY_ENCODERS[family]
    infos: dict[str, CheckpointInfo] = {}
    problems: dict[str, str] = {}
    seen: dict[str, str] = {}
    for name, file in names.items():
        try:
            infos[name] = _encoder_file(catalog, file)
        except ModelFileProblem as problem:
            problems[name] = problem.message
            continue
        encoders = infos[name].encoders
        twice = next((encoder for encoder in encoders if encoder in seen), None)
        if taken is not None and not set(taken).issuperset(encoders):
            problems[name] = _misfit(file, encoders, taken, family)
        elif twice is not None:
            also = f"{twice}, as {seen[twice]} does"
            problems[name] = f"{file} holds {also}; each file must hold another encoder"
        seen.update(dict.fromkeys(encoders, file))
    return infos, problems


def _encoder_file(catalog: Catalog, name: str) -> CheckpointInfo:
    info = catalog.part(KIND, name)
    if Role.TEXT_ENCODER not in info.roles or not info.encoders:
        is_a = ", ".join(sorted(info.roles))
        raise ModelFileProblem(f"{name} is a {is_a}, not a {Role.TEXT_ENCODER}", name=name)
    return info


def _single_family(info: CheckpointInfo, name: str, type_: str) -> str:
    """The family of a file that is named alone. Raises: ModelFileProblem: none takes it."""
    families = {SINGLE_FAMILIES[type_].get(encoder) for encoder in info.encoders}
    if len(families) != 1 or None in families:
        taken = " or ".join(SINGLE_FAMILIES[type_])
        message = f"{name} holds {' and '.join(info.encoders)}; type {type_} takes {taken}"
        raise ModelFileProblem(message, name=name)
    return str(families.pop())


def _handle(family: str, infos: Sequence[CheckpointInfo]) -> Handle:
    """The text encoder in these files, whichever came first."""
    own = FAMILY_ENCODERS[family]
    files = [one.file for one in sorted(infos, key=lambda one: own.index(one.encoders[0]))]
    key = ModelKey(
        role=Role.TEXT_ENCODER,
        family=family,
        file=files[0],
        dtype=STORED_DTYPE,
        more_files=tuple(dict.fromkeys(files[1:])),
    )
    return Handle(ref=ModelRef(key=key))


def _misfit(name: str, encoders: Sequence[str], taken: Sequence[str], type_: object) -> str:
    return f"{name} holds {' and '.join(encoders)}; type {type_} takes {' and '.join(taken)}"


def _unsupported(type_: object, supported: Sequence[str] | Mapping[str, object]) -> str:
    return f"text encoders of type {type_} are not supported yet, only {', '.join(supported)}"
