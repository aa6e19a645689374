"""What the tables of picture and mask classes are made of: rows, and inputs that many have."""

from __future__ import annotations

from typing import Final

import msgspec

from ..types import IMAGE
from .plain import PlainNode, plain
from .schema import InputSpec, NodeSchema, integer, ports

MAX_SIDE: Final = 16384
MAX_SEED: Final = 0xFFFFFFFFFFFFFFFF


def row(
    class_type: str,
    module: str,
    category: str,
    inputs: tuple[InputSpec, ...],
    display_name: str | None = None,
    **outputs: str,
) -> PlainNode:
    """A row; the only output is IMAGE where none is named."""
    schema = NodeSchema(
        class_type=class_type,
        display_name=display_name,
        category=category,
        python_module=f"comfy_extras.nodes_{module}",
        inputs=inputs,
        outputs=ports(**(outputs or {"IMAGE": IMAGE})),
        is_v3=True,
        is_experimental=module == "dataset",
    )
    return plain(schema)


def list_row(
    class_type: str,
    display_name: str,
    *inputs: InputSpec,
    module: str = "dataset",
    category: str = "dataset/image",
    gives_lists: bool = True,
    **outputs: str,
) -> PlainNode:
    """A row of a class that gets all items of the lists on its inputs in one call."""
    single = row(class_type, module, category, inputs, display_name, **outputs).schema
    lists = (gives_lists,) * len(single.outputs)
    schema = msgspec.structs.replace(single, is_input_list=True, output_lists=lists)
    return plain(schema)


def side(name: str, default: int, low: int = 0) -> InputSpec:
    """Pixels."""
    return integer(name, default=default, min=low, max=MAX_SIDE, step=1)


def sides(*names: str, default: int = 512, low: int = 1) -> tuple[InputSpec, ...]:
    return tuple(side(name, default, low) for name in names)


def optional(spec: InputSpec) -> InputSpec:
    return InputSpec(name=spec.name, type=spec.type, options=spec.options, is_required=False)
