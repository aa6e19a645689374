"""Node classes that name models: they make handles and add nothing to the DAG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..catalog import Catalog, CheckpointInfo
from ..errors import ModelFileProblem
from ..handles import ModelKey, ModelRef, Role
from ..types import CLIP, MODEL, VAE
from .base import NodeClass
from .lowering import Handle, Lowering, Value
from .schema import FileChoices, NodeSchema, combo, ports

# As ComfyUI holds them on a CPU: the text encoder's weights are rounded to half precision.
STORED_DTYPES: Final = {
    Role.DENOISER: "float32",
    Role.TEXT_ENCODER: "float16",
    Role.VAE: "float32",
}


class CheckpointLoaderSimple(NodeClass):
    """A checkpoint file's denoiser, text encoder and VAE."""

    schema = NodeSchema(
        class_type="CheckpointLoaderSimple",
        display_name="Load Checkpoint",
        category="loaders",
        inputs=(combo("ckpt_name", FileChoices(kind="checkpoints"), {}),),
        outputs=ports(MODEL=MODEL, CLIP=CLIP, VAE=VAE),
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        if "ckpt_name" not in literals:
            return {}
        try:
            _checkpoint(literals["ckpt_name"], catalog)
        except ModelFileProblem as problem:
            return {"ckpt_name": problem.message}
        return {}

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        try:
            info = _checkpoint(node.text("ckpt_name"), node.catalog)
        except ModelFileProblem as problem:
            raise node.refusal("ckpt_name", problem.message) from problem
        return tuple(
            Handle(
                ref=ModelRef(
                    key=ModelKey(role=role, family=info.family, file=info.file, dtype=dtype)
                )
            )
            for role, dtype in STORED_DTYPES.items()
        )


def _checkpoint(name: str, catalog: Catalog) -> CheckpointInfo:
    info = catalog.checkpoint(name)
    if missing := STORED_DTYPES.keys() - info.roles:
        raise ModelFileProblem(f"{name} has no {', no '.join(sorted(missing))}", name=name)
    return info
