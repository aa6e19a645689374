"""Node classes that make a SAMPLER of a name or of a sampler's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ..handles import Scalar
from ..sampling.samplers import SAMPLER_NAMES, sampler_text
from ..types import BOOLEAN, FLOAT, INT, MODEL
from .base import NodeClass
from .lowering import Constant, Lowering, Value
from .schema import InputSpec, NodeSchema, integer, number, ports, socket, switch
from .sigma_schedules import CUSTOM_SAMPLER, sampling_on
from .tabled import choice, node_class
from .values import SamplerValue

SAMPLER: Final = "SAMPLER"
SAMPLERS: Final = "sampling/custom_sampling/samplers"
ADVANCED_SAMPLERS: Final = "comfy_extras.nodes_advanced_samplers"

Options = Mapping[str, Scalar]
Named = Callable[[dict[str, Scalar]], tuple[str, Options]]


def _float(name: str, default: float, high: float = 100.0) -> InputSpec:
    return number(name, default=default, min=0.0, max=high, step=0.01, round=False)


_ETA: Final = _float("eta", 1.0)
_S_NOISE: Final = _float("s_noise", 1.0)
_DEVICE: Final = choice("noise_device", ("gpu", "cpu"))


def _value(node: Lowering, spec: InputSpec) -> Scalar:
    value = node.inputs[spec.name]
    if spec.type == FLOAT:
        return node.number(spec.name)
    if spec.type == INT:
        return node.integer(spec.name)
    if spec.type == BOOLEAN:
        return bool(value.value if isinstance(value, Constant) else node.integer(spec.name))
    return node.text(spec.name)


def _sampler(
    class_type: str,
    inputs: tuple[InputSpec, ...],
    named: Named,
    doc: str,
    *,
    of_model: Callable[[Lowering, dict[str, Scalar]], None] | None = None,
    display_name: str | None = None,
    python_module: str = CUSTOM_SAMPLER,
    category: str = SAMPLERS,
    is_experimental: bool = False,
) -> type[NodeClass]:
    settings = [spec for spec in inputs if spec.type != MODEL]

    def lower(node: Lowering) -> tuple[Value, ...]:
        node.require(*(spec.name for spec in settings))
        values = {spec.name: _value(node, spec) for spec in settings}
        if of_model is not None:
            of_model(node, values)
        name, options = named(values)
        try:
            return (SamplerValue(text=sampler_text(name, **options)),)
        except (KeyError, ValueError, msgspec.MsgspecError) as problem:
            reason = f"the sampler {name} can't be had with {dict(options)}: {problem}"
            raise node.refusal(settings[0].name, reason) from problem

    schema = NodeSchema(
        class_type=class_type,
        display_name=display_name,
        category=category,
        python_module=python_module,
        inputs=inputs,
        outputs=ports(SAMPLER=SAMPLER),
        is_v3=True,
        is_experimental=is_experimental,
    )
    return node_class(schema, lower, doc)


def _always(name: str) -> Named:
    return lambda options: (name, options)


def _on_device(name: str) -> Named:
    """The noise is drawn on the CPU either way; the name says where ComfyUI draws it."""

    def named(options: dict[str, Scalar]) -> tuple[str, Options]:
        device = options.pop("noise_device")
        return (f"{name}_gpu" if device == "gpu" else name), options

    return named


def _second_order_sde(options: dict[str, Scalar]) -> tuple[str, Options]:
    solver = options.pop("solver_type")
    name = "dpmpp_2m_sde_heun" if solver == "heun" else "dpmpp_2m_sde"
    return _on_device(name)(options)


def _sa_solver(options: dict[str, Scalar]) -> tuple[str, Options]:
    return ("sa_solver_pece" if options.pop("use_pece") else "sa_solver"), options


def _sigmas_of_percents(node: Lowering, options: dict[str, Scalar]) -> None:
    """Between which noise levels of the model noise is added."""
    for end in ("start", "end"):
        del options[f"sde_{end}_percent"]
        sigma = sampling_on(node).percent_to_sigma(node.number(f"sde_{end}_percent"))
        options[f"sde_{end}_sigma"] = sigma


def _euler_cfg_pp(options: dict[str, Scalar]) -> tuple[str, Options]:
    is_regular = options["version"] == "regular"
    return ("euler_cfg_pp" if is_regular else "euler_past_guidance"), {}


NODES: Final[tuple[type[NodeClass], ...]] = (
    _sampler(
        "KSamplerSelect",
        (choice("sampler_name", SAMPLER_NAMES),),
        lambda options: (str(options["sampler_name"]), {}),
        "A sampler by its name.",
    ),
    _sampler(
        "SamplerEulerAncestral",
        (_ETA, _S_NOISE),
        _always("euler_ancestral"),
        "Euler's steps with fresh noise.",
    ),
    _sampler(
        "SamplerEulerAncestralCFGPP",
        (_float("eta", 1.0, 1.0), _float("s_noise", 1.0, 10.0)),
        _always("euler_ancestral_cfg_pp"),
        "Euler's steps with fresh noise, along the negative side's noise.",
        display_name="SamplerEulerAncestralCFG++",
    ),
    _sampler(
        "SamplerLMS",
        (integer("order", default=4, min=1, max=100),),
        _always("lms"),
        "Linear multistep.",
    ),
    _sampler(
        "SamplerDPMPP_3M_SDE",
        (_ETA, _S_NOISE, _DEVICE),
        _on_device("dpmpp_3m_sde"),
        "The third order multistep SDE solver.",
    ),
    _sampler(
        "SamplerDPMPP_2M_SDE",
        (choice("solver_type", ("midpoint", "heun")), _ETA, _S_NOISE, _DEVICE),
        _second_order_sde,
        "The second order multistep SDE solver.",
    ),
    _sampler(
        "SamplerDPMPP_SDE",
        (_ETA, _S_NOISE, _float("r", 0.5), _DEVICE),
        _on_device("dpmpp_sde"),
        "The two-stage SDE solver.",
    ),
    _sampler(
        "SamplerDPMPP_2S_Ancestral",
        (_ETA, _S_NOISE),
        _always("dpmpp_2s_ancestral"),
        "The two-stage solver with fresh noise.",
    ),
    _sampler(
        "SamplerDPMAdaptative",
        (
            integer("order", default=3, min=2, max=3),
            _float("rtol", 0.05),
            _float("atol", 0.0078),
            _float("h_init", 0.05),
            _float("pcoeff", 0.0),
            _float("icoeff", 1.0),
            _float("dcoeff", 0.0),
            _float("accept_safety", 0.81),
            _float("eta", 0.0),
            _S_NOISE,
        ),
        _always("dpm_adaptive"),
        "Steps as long as an error allows.",
    ),
    _sampler(
        "SamplerER_SDE",
        (
            choice("solver_type", ("ER-SDE", "Reverse-time SDE", "ODE")),
            integer("max_stage", default=3, min=1, max=3),
            _ETA,
            _S_NOISE,
        ),
        _always("er_sde"),
        "Extended reverse-time SDE solver.",
    ),
    _sampler(
        "SamplerSASolver",
        (
            socket("model", MODEL),
            _float("eta", 1.0, 10.0),
            number("sde_start_percent", default=0.2, min=0.0, max=1.0, step=0.001),
            number("sde_end_percent", default=0.8, min=0.0, max=1.0, step=0.001),
            _S_NOISE,
            integer("predictor_order", default=3, min=1, max=6),
            integer("corrector_order", default=4, min=0, max=6),
            switch("use_pece"),
            switch("simple_order_2"),
        ),
        _sa_solver,
        "Stochastic Adams solver.",
        of_model=_sigmas_of_percents,
    ),
    _sampler(
        "SamplerSEEDS2",
        (
            choice("solver_type", ("phi_1", "phi_2")),
            _ETA,
            _S_NOISE,
            number("r", default=0.5, min=0.01, max=1.0, step=0.01, round=False),
        ),
        _always("seeds_2"),
        "Exponential SDE solver of two stages.",
    ),
    _sampler(
        "SamplerLCMUpscale",
        (
            number("scale_ratio", default=1.0, min=0.1, max=20.0, step=0.01),
            integer("scale_steps", default=-1, min=-1, max=1000, step=1),
            choice("upscale_method", ("bislerp", "nearest-exact", "bilinear", "area", "bicubic")),
        ),
        _always("lcm_upscale"),
        "LCM on a latent that grows in the first half of the steps, or in as many as said.",
        python_module=ADVANCED_SAMPLERS,
    ),
    _sampler(
        "SamplerEulerCFGpp",
        (choice("version", ("regular", "alternative")),),
        _euler_cfg_pp,
        "Euler's steps along the negative side's noise.",
        display_name="SamplerEulerCFG++",
        python_module=ADVANCED_SAMPLERS,
        category="_for_testing",
        is_experimental=True,
    ),
)
