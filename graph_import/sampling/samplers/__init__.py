"""Samplers by ComfyUI's names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from ...handles import Scalar
from ..base import Sampler
from .cfg_pp import Dpmpp2MCfgPp, EulerCfgPp, EulerPastGuidance, GradientEstimationCfgPp
from .cfg_pp_second_order import Dpmpp2SAncestralCfgPp, ResMultistepCfgPp
from .consistency import Ddpm, Lcm
from .deis import Deis
from .dpm2 import Dpm2, Dpm2Ancestral
from .dpm_adaptive import DpmAdaptive
from .dpm_fast import DpmFast
from .dpmpp import Dpmpp2M
from .dpmpp_2s import Dpmpp2SAncestral
from .dpmpp_sde import Dpmpp2MSde, Dpmpp3MSde, DpmppSde
from .er_sde import ErSde
from .euler import Ddim, Euler, EulerAncestral
from .gradient_estimation import GradientEstimation
from .heun import Heun
from .heunpp import HeunPp2
from .ipndm_v import IpndmV
from .lcm_upscale import LcmUpscale
from .multistep import Ipndm, Lms
from .res_multistep import ResMultistep
from .sa_solver import SaSolver
from .seeds import ExpHeun2X0, Seeds2, Seeds3
from .unipc import UniPc

_ALL: Final = (
    Euler(),
    EulerCfgPp(),
    EulerAncestral(),
    EulerCfgPp(name="euler_ancestral_cfg_pp", eta=1.0),
    Heun(),
    HeunPp2(),
    ExpHeun2X0(),
    ExpHeun2X0(name="exp_heun_2_x0_sde", eta=1.0),
    Dpm2(),
    Dpm2Ancestral(),
    Lms(),
    DpmFast(),
    DpmAdaptive(),
    Dpmpp2SAncestral(),
    Dpmpp2SAncestralCfgPp(),
    DpmppSde(),
    DpmppSde(name="dpmpp_sde_gpu"),
    Dpmpp2M(),
    Dpmpp2MCfgPp(),
    Dpmpp2MSde(),
    Dpmpp2MSde(name="dpmpp_2m_sde_gpu"),
    Dpmpp2MSde(name="dpmpp_2m_sde_heun", solver_type="heun"),
    Dpmpp2MSde(name="dpmpp_2m_sde_heun_gpu", solver_type="heun"),
    Dpmpp3MSde(),
    Dpmpp3MSde(name="dpmpp_3m_sde_gpu"),
    Ddpm(),
    Lcm(),
    Ipndm(),
    IpndmV(),
    Deis(),
    ResMultistep(),
    ResMultistepCfgPp(),
    ResMultistep(name="res_multistep_ancestral", eta=1.0),
    ResMultistepCfgPp(name="res_multistep_ancestral_cfg_pp", eta=1.0),
    GradientEstimation(),
    GradientEstimationCfgPp(),
    ErSde(),
    Seeds2(),
    Seeds3(),
    SaSolver(),
    SaSolver(name="sa_solver_pece", evaluates_twice=True),
    Ddim(),
    UniPc(),
    UniPc(name="uni_pc_bh2", variant="bh2"),
)
_OF_NODES: Final = (EulerPastGuidance(), LcmUpscale())  # made by nodes alone: not in the list
_BY_NAME: Final[Mapping[str, Sampler]] = MappingProxyType(
    {item.name: item for item in (*_ALL, *_OF_NODES)}
)
SAMPLER_NAMES: Final = tuple(item.name for item in _ALL)  # in ComfyUI's order


@lru_cache(maxsize=256)
def sampler(text: str) -> Sampler:
    """The sampler that a plain name or a text of `sampler_text` stands for.

    Raises: KeyError: there is none of that name; msgspec.MsgspecError: the options don't fit it;
    ValueError: one is not finite.
    """
    if not text.startswith("{"):
        return _BY_NAME[text]
    options = msgspec.json.decode(text, type=dict[str, Scalar])
    return _with_options(_BY_NAME[str(options["name"])], options)


def sampler_text(name: str, **options: Scalar) -> str:
    """What names a sampler in a DAG; the plain name where the options are the usual ones.

    Raises: as `sampler`.
    """
    usual = _BY_NAME[name]
    chosen = _with_options(usual, options)
    return name if chosen == usual else msgspec.json.encode(chosen, order="sorted").decode()


def _with_options(usual: Sampler, options: Mapping[str, Scalar]) -> Sampler:
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    return msgspec.convert(msgspec.structs.asdict(usual) | dict(options), type(usual))
