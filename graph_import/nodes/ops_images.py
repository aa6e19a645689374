"""The ops of pictures and masks that need no model, by the module that has their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .image_schemas import DATASETS, IMAGES, LISTS, MASKS
from .op_spec import OpSpec
from .plain import PlainNode

PLAIN: Final[tuple[PlainNode, ...]] = (*IMAGES, *MASKS, *DATASETS, *LISTS)
TABLE: Final[Mapping[str, OpSpec]] = MappingProxyType({row.op: row.spec for row in PLAIN})
