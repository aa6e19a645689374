"""Port types and what may connect to what. Names are ComfyUI's, so packs may add their own."""

from __future__ import annotations

from typing import Final

IMAGE: Final = "IMAGE"  # float32 [B, H, W, C], 0 to 1
MASK: Final = "MASK"  # float32 [B, H, W], 0 to 1
LATENT: Final = "LATENT"  # samples float32 [B, C, H/8, W/8], unscaled
CONDITIONING: Final = "CONDITIONING"
INT: Final = "INT"
FLOAT: Final = "FLOAT"
STRING: Final = "STRING"
BOOLEAN: Final = "BOOLEAN"
COMBO: Final = "COMBO"
MODEL: Final = "MODEL"
CLIP: Final = "CLIP"
VAE: Final = "VAE"
CONTROL_NET: Final = "CONTROL_NET"
UPSCALE_MODEL: Final = "UPSCALE_MODEL"
ANY: Final = "*"
MATCH_TYPE: Final = "COMFY_MATCHTYPE_V3"  # the editor checks these, the server lets any type pass
DYNAMIC_COMBO: Final = "COMFY_DYNAMICCOMBO_V3"  # a choice that brings inputs of its own
AUTOGROW: Final = "COMFY_AUTOGROW_V3"  # stands for any number of inputs of one type
SAMPLER_STATE: Final = "SAMPLER_STATE"  # this and the next two only where Python workflows sample
ESTIMATE: Final = "ESTIMATE"  # what a denoiser is asked for at a step
RESIDUALS: Final = "RESIDUALS"  # what a ControlNet adds to a denoiser's evaluation
ESTIMATES: Final = "ESTIMATES"  # of some of an evaluation's calls; only inside a lowered Graph
PATCH: Final = "PATCH"  # that a patch file was fetched and checked; only inside a lowered Graph

SCALARS: Final = frozenset({INT, FLOAT, STRING, BOOLEAN, COMBO})

TypeSpec = str | list[object]  # a name, a comma union, or (old combos) the list of choices


def connects(received: TypeSpec, declared: TypeSpec) -> bool:
    """Whether an output of type `received` may feed an input declared as `declared`.

    Source: spec comfyui-api/validation.md, section 4.
    """
    if received == declared or not {ANY, MATCH_TYPE}.isdisjoint(_names(received, declared)):
        return True
    if isinstance(received, list):
        return declared == COMBO
    if isinstance(declared, list):
        return False
    given, wanted = union(received), union(declared)
    return bool(given & wanted) or ANY in given | wanted


def union(type_: str) -> frozenset[str]:
    """The members of a comma union such as `INT,FLOAT`; a plain name is a union of one."""
    return frozenset(part.strip() for part in type_.split(","))


def takes_literals(type_: str) -> bool:
    """Whether an input of `type_` may be given in the prompt itself, not only by a link."""
    return not union(type_).isdisjoint(SCALARS | {ANY, MATCH_TYPE, DYNAMIC_COMBO})


def _names(*types: TypeSpec) -> set[str]:
    return {type_ for type_ in types if isinstance(type_, str)}
