"""Ops beside a run of samplers: noise on latents, and what a run thinks of the picture."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..types import BOOLEAN, INT, LATENT, SAMPLER_STATE, STRING
from .op_spec import OpSpec
from .schema import ports

TABLE: Final[Mapping[str, OpSpec]] = MappingProxyType(
    {
        "add_noise": OpSpec(
            args={
                "latent": LATENT,
                "seed": INT,
                "add_noise": BOOLEAN,
                "sigmas": "SIGMAS",
                "family": STRING,
            },
            optional={"model_sampling": STRING},
            outputs=ports(latent=LATENT),
        ),
        "sample_denoised": OpSpec(
            args={"state": SAMPLER_STATE, "latent": LATENT, "family": STRING},
            outputs=ports(latent=LATENT),
        ),
        "latent_operation": OpSpec(
            args={"samples": LATENT, "operation": STRING}, outputs=ports(latent=LATENT)
        ),
    }
)
