"""Node classes that make SIGMAS: constants, so what they are asked for must be known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ..families import sampling_of
from ..handles import MODEL_SAMPLING
from ..sampling import node_schedules, tables
from ..sampling.model_sampling import ModelSampling
from ..sampling.schedules import SCHEDULE_NAMES, basic_sigmas
from ..types import FLOAT, LATENT, MODEL
from .base import NodeClass
from .lowering import Constant, Lowering, Value
from .schema import InputSpec, NodeSchema, integer, number, ports, socket, switch, text
from .tabled import choice, node_class
from .values import SigmasValue

SIGMAS: Final = "SIGMAS"
SCHEDULERS: Final = "sampling/custom_sampling/schedulers"
CUSTOM_SAMPLER: Final = "comfy_extras.nodes_custom_sampler"

_STEPS: Final = integer("steps", default=20, min=1, max=10000)
_DENOISE: Final = number("denoise", default=1.0, min=0.0, max=1.0, step=0.01)
_MODEL: Final = socket("model", MODEL)


def sampling_on(node: Lowering, name: str = "model") -> ModelSampling:
    """How the model on an input measures noise."""
    model = node.model(name)
    return sampling_of(model.key.family, model.option(MODEL_SAMPLING))


def _float(name: str, default: float, high: float, step: float = 0.01) -> InputSpec:
    return number(name, default=default, min=0.0, max=high, step=step, round=False)


def _scheduler(
    class_type: str,
    inputs: tuple[InputSpec, ...],
    make: Callable[[Lowering], tuple[float, ...]],
    doc: str,
    *,
    python_module: str = CUSTOM_SAMPLER,
    category: str = SCHEDULERS,
    is_experimental: bool = False,
) -> type[NodeClass]:
    """A class whose numbers and choices are all needed before `make` can say the sigmas."""
    needed = [spec.name for spec in inputs if spec.type not in (MODEL, LATENT)]

    def lower(node: Lowering) -> tuple[Value, ...]:
        node.require(*needed)
        try:
            sigmas = tuple(make(node))
        except (ValueError, OverflowError, ZeroDivisionError) as problem:
            raise node.refusal(needed[0], f"no schedule: {problem}") from problem
        if not all(math.isfinite(sigma) for sigma in sigmas):
            raise node.refusal(needed[0], "the numbers given make no finite schedule")
        return (SigmasValue(sigmas=sigmas),)

    schema = NodeSchema(
        class_type=class_type,
        display_name=None,
        category=category,
        python_module=python_module,
        inputs=inputs,
        outputs=ports(SIGMAS=SIGMAS),
        is_v3=True,
        is_experimental=is_experimental,
    )
    return node_class(schema, lower, doc)


def _numbers(*names: str) -> Callable[[Lowering], list[float]]:
    return lambda node: [node.number(name) for name in names]


def _ltxv(node: Lowering) -> tuple[float, ...]:
    if "latent" in node.inputs:
        raise node.refusal(
            "latent", "its size isn't known before anything runs; leave it unconnected"
        )
    return node_schedules.ltxv_sigmas(
        node.integer("steps"),
        node.number("max_shift"),
        node.number("base_shift"),
        node.number("terminal"),
        is_stretched=_switch(node, "stretch"),
    )


def _switch(node: Lowering, name: str) -> bool:
    value = node.inputs[name]
    return bool(value.value) if isinstance(value, Constant) else bool(node.integer(name))


_SIGMA_MAX: Final = _float("sigma_max", 14.614642, 5000.0)
_SIGMA_MIN: Final = _float("sigma_min", 0.0291675, 5000.0)


def _percent_to_sigma(node: Lowering) -> tuple[Value, ...]:
    node.require("sampling_percent", "return_actual_sigma")
    sigma = node_schedules.percent_sigma(
        sampling_on(node),
        node.number("sampling_percent"),
        is_actual=_switch(node, "return_actual_sigma"),
    )
    return (Constant(value=sigma),)


NODES: Final[tuple[type[NodeClass], ...]] = (
    _scheduler(
        "BasicScheduler",
        (_MODEL, choice("scheduler", SCHEDULE_NAMES), _STEPS, _DENOISE),
        lambda node: basic_sigmas(
            sampling_on(node), node.text("scheduler"), node.integer("steps"), node.number("denoise")
        ),
        "A named schedule of a model's noise levels.",
    ),
    _scheduler(
        "KarrasScheduler",
        (_STEPS, _SIGMA_MAX, _SIGMA_MIN, _float("rho", 7.0, 100.0)),
        lambda node: node_schedules.karras_sigmas(
            node.integer("steps"), *_numbers("sigma_max", "sigma_min", "rho")(node)
        ),
        "Evenly spaced in sigma^(1/rho).",
    ),
    _scheduler(
        "ExponentialScheduler",
        (_STEPS, _SIGMA_MAX, _SIGMA_MIN),
        lambda node: node_schedules.polyexponential_sigmas(
            node.integer("steps"), node.number("sigma_max"), node.number("sigma_min"), rho=1.0
        ),
        "Evenly spaced in log-sigma.",
    ),
    _scheduler(
        "PolyexponentialScheduler",
        (_STEPS, _SIGMA_MAX, _SIGMA_MIN, _float("rho", 1.0, 100.0)),
        lambda node: node_schedules.polyexponential_sigmas(
            node.integer("steps"), *_numbers("sigma_max", "sigma_min", "rho")(node)
        ),
        "A power of even spacing, in log-sigma.",
    ),
    _scheduler(
        "LaplaceScheduler",
        (
            _STEPS,
            _SIGMA_MAX,
            _SIGMA_MIN,
            number("mu", default=0.0, min=-10.0, max=10.0, step=0.1, round=False),
            _float("beta", 0.5, 10.0, 0.1),
        ),
        lambda node: node_schedules.laplace_sigmas(
            node.integer("steps"), *_numbers("sigma_max", "sigma_min", "mu", "beta")(node)
        ),
        "Quantiles of a Laplace distribution of log-sigma.",
    ),
    _scheduler(
        "VPScheduler",
        (
            _STEPS,
            _float("beta_d", 19.9, 5000.0),
            _float("beta_min", 0.1, 5000.0),
            _float("eps_s", 0.001, 1.0, 0.0001),
        ),
        lambda node: node_schedules.vp_sigmas(
            node.integer("steps"), *_numbers("beta_d", "beta_min", "eps_s")(node)
        ),
        "Even times of a variance-preserving diffusion.",
    ),
    _scheduler(
        "BetaSamplingScheduler",
        (_MODEL, _STEPS, _float("alpha", 0.6, 50.0), _float("beta", 0.6, 50.0)),
        lambda node: node_schedules.beta_sampling_sigmas(
            sampling_on(node), node.integer("steps"), node.number("alpha"), node.number("beta")
        ),
        "Quantiles of a beta distribution of a model's noise levels.",
    ),
    _scheduler(
        "SDTurboScheduler",
        (
            _MODEL,
            integer("steps", default=1, min=1, max=10),
            number("denoise", default=1.0, min=0, max=1.0, step=0.01),
        ),
        lambda node: node_schedules.turbo_sigmas(
            sampling_on(node), node.integer("steps"), node.number("denoise")
        ),
        "The noise levels that SD Turbo was distilled at.",
    ),
    _scheduler(
        "AlignYourStepsScheduler",
        (
            choice("model_type", tuple(tables.ALIGN_YOUR_STEPS)),
            integer("steps", default=10, min=1, max=10000),
            _DENOISE,
        ),
        lambda node: tables.align_your_steps(
            node.text("model_type"), node.integer("steps"), node.number("denoise")
        ),
        "Schedules searched for by Align Your Steps.",
        python_module="comfy_extras.nodes_align_your_steps",
    ),
    _scheduler(
        "GITSScheduler",
        (
            number("coeff", default=1.2, min=0.8, max=1.5, step=0.05),
            integer("steps", default=10, min=2, max=1000),
            _DENOISE,
        ),
        lambda node: tables.gits(
            node.number("coeff"), node.integer("steps"), node.number("denoise")
        ),
        "Schedules searched for by GITS; those that are known.",
        python_module="comfy_extras.nodes_gits",
    ),
    _scheduler(
        "OptimalStepsScheduler",
        (
            choice("model_type", tuple(tables.OPTIMAL_STEPS)),
            integer("steps", default=20, min=3, max=1000),
            _DENOISE,
        ),
        lambda node: tables.optimal_steps(
            node.text("model_type"), node.integer("steps"), node.number("denoise")
        ),
        "Schedules of optimal steps for flow models; those that are known.",
        python_module="comfy_extras.nodes_optimalsteps",
    ),
    _scheduler(
        "Flux2Scheduler",
        (
            integer("steps", default=20, min=1, max=4096),
            integer("width", default=1024, min=16, max=16384, step=1),
            integer("height", default=1024, min=16, max=16384, step=1),
        ),
        lambda node: node_schedules.flux2_sigmas(
            node.integer("steps"), node.integer("width"), node.integer("height")
        ),
        "Flux 2's schedule for a picture of a size.",
        python_module="comfy_extras.nodes_flux",
    ),
    _scheduler(
        "LTXVScheduler",
        (
            _STEPS,
            number("max_shift", default=2.05, min=0.0, max=100.0, step=0.01),
            number("base_shift", default=0.95, min=0.0, max=100.0, step=0.01),
            switch("stretch", default=True),
            number("terminal", default=0.1, min=0.0, max=0.99, step=0.01),
            InputSpec(name="latent", type=LATENT, options={}, is_required=False),
        ),
        _ltxv,
        "LTX Video's schedule for a video of the usual size.",
        python_module="comfy_extras.nodes_lt",
    ),
    _scheduler(
        "ManualSigmas",
        (text("sigmas", default="1, 0.5", multiline=False),),
        lambda node: node_schedules.written_sigmas(node.text("sigmas")),
        "Sigmas written out.",
        category="_for_testing/custom_sampling",
        is_experimental=True,
    ),
    node_class(
        NodeSchema(
            class_type="SamplingPercentToSigma",
            display_name=None,
            category="sampling/custom_sampling/sigmas",
            python_module=CUSTOM_SAMPLER,
            inputs=(
                _MODEL,
                number("sampling_percent", default=0.0, min=0.0, max=1.0, step=0.0001),
                switch("return_actual_sigma", default=False),
            ),
            outputs=ports(sigma_value=FLOAT),
            is_v3=True,
        ),
        _percent_to_sigma,
        "The noise level of a model at a share of the sampling.",
    ),
)
