"""The ops that put something on the entries of a conditioning, and what its hooks become."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..types import CONDITIONING, FLOAT, MASK, STRING
from .conditioning_rows import ROWS, TIMESTEPS_RANGE
from .op_spec import OpSpec
from .schema import ports

TABLE: Final[Mapping[str, OpSpec]] = MappingProxyType(
    {
        **{row.op: row.spec for row in ROWS},
        "conditioning_set_properties": OpSpec(
            args={"conditioning": CONDITIONING, "strength": FLOAT, "set_cond_area": STRING},
            optional={"mask": MASK, "timesteps": TIMESTEPS_RANGE},
            outputs=ports(conditioning=CONDITIONING),
        ),
        "conditioning_set_default": OpSpec(
            args={"conditioning": CONDITIONING}, outputs=ports(conditioning=CONDITIONING)
        ),
        "timesteps_ranges": OpSpec(
            args={"start_percent": FLOAT, "end_percent": FLOAT},
            outputs=ports(range=TIMESTEPS_RANGE, before=TIMESTEPS_RANGE, after=TIMESTEPS_RANGE),
        ),
        "cond_hooks": OpSpec(
            args={"conditioning": CONDITIONING},
            outputs=ports(conditioning=CONDITIONING),
            numbered={"hook": STRING},
        ),
    }
)
