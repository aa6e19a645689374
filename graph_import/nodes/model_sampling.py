"""Node classes that say how a model measures noise: they set an option of its handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..families import family
from ..handles import MODEL_SAMPLING
from ..sampling.model_sampling import ModelSampling, sampling_text
from ..sampling.model_sampling_cascade import CascadeModelSampling
from ..sampling.model_sampling_continuous import (
    AngleModelSampling,
    CosmosModelSampling,
    EdmModelSampling,
)
from ..sampling.model_sampling_discrete import DiscreteModelSampling
from ..sampling.model_sampling_flow import FlowModelSampling, FluxModelSampling, token_mu
from ..sampling.predictions import Prediction
from ..types import LATENT, MODEL
from .base import NodeClass
from .lowering import Constant, Lowering, Value
from .schema import InputSpec, NodeSchema, combo, integer, number, ports, socket, switch
from .tabled import node_class

EDM_SIGMA_DATA: Final = 0.5
DISTILLED_STRIDE: Final = 20  # a consistency model knows every so many timesteps
FLUX_TOKEN: Final = 16  # pixels along one side of a token
USUAL_VIDEO_TOKENS: Final = 4096
MODEL_ADVANCED: Final = "comfy_extras.nodes_model_advanced"
_SHIFT: Final = (("min", 0.0), ("max", 100.0), ("step", 0.01))


def _shift(name: str, default: float) -> InputSpec:
    return number(name, default=default, **dict(_SHIFT))


def _sigma(name: str, default: float) -> InputSpec:
    return number(name, default=default, min=0.0, max=1000.0, step=0.001, round=False)


def _setting(
    class_type: str,
    inputs: tuple[InputSpec, ...],
    make: Callable[[Lowering], ModelSampling],
    doc: str,
    **more: bool | str | None,
) -> type[NodeClass]:
    needed = [spec.name for spec in inputs if spec.type != LATENT]
    is_v3 = bool(more.get("is_v3", False))

    def lower(node: Lowering) -> tuple[Value, ...]:
        node.require(*needed)
        handle = node.handle("model")
        return (handle.on(handle.ref.with_option(MODEL_SAMPLING, sampling_text(make(node)))),)

    schema = NodeSchema(
        class_type=class_type,
        display_name=None if is_v3 else class_type,
        category="advanced/model",
        python_module=str(more.get("python_module", MODEL_ADVANCED)),
        inputs=(socket("model", MODEL, is_bare=not is_v3), *inputs),
        outputs=ports(MODEL=MODEL),
        is_v3=is_v3,
    )
    return node_class(schema, lower, doc)


def _discrete(node: Lowering) -> ModelSampling:
    """The betas are the family's where it has any, else those of Stable Diffusion."""
    prediction = Prediction(node.text("sampling"))
    own = family(node.model("model").key.family).model_sampling
    betas = own if isinstance(own, DiscreteModelSampling) else DiscreteModelSampling()
    zsnr = node.inputs["zsnr"]
    return DiscreteModelSampling(
        prediction=prediction,
        beta_start=betas.beta_start,
        beta_end=betas.beta_end,
        num_timesteps=betas.num_timesteps,
        is_linear=betas.is_linear,
        is_zero_snr=bool(zsnr.value if isinstance(zsnr, Constant) else node.integer("zsnr")),
        stride=DISTILLED_STRIDE if prediction is Prediction.LCM else 1,
    )


def _sigmas(node: Lowering) -> tuple[float, float]:
    low, high = node.number("sigma_min"), node.number("sigma_max")
    if not 0.0 < low < high:
        raise node.refusal("sigma_min", f"{low} must be above 0 and below sigma_max, {high}")
    return low, high


def _edm(node: Lowering) -> ModelSampling:
    kind, (low, high) = node.text("sampling"), _sigmas(node)
    if kind == "cosmos_rflow":
        return CosmosModelSampling(sigma_min=low, sigma_max=high)
    if kind == "edm_playground_v2.5":
        raise node.refusal("sampling", "Playground's own scale of latents is not supported yet")
    return EdmModelSampling(
        prediction=Prediction(kind),
        sigma_min=low,
        sigma_max=high,
        sigma_data=EDM_SIGMA_DATA if kind == Prediction.EDM else 1.0,
    )


def _angle(node: Lowering) -> ModelSampling:
    low, high = _sigmas(node)
    return AngleModelSampling(sigma_min=low, sigma_max=high)


def _above_zero(node: Lowering, name: str) -> float:
    shift = node.number(name)
    if shift <= 0.0:
        raise node.refusal(name, "it must be above 0")
    return shift


def _flux(node: Lowering) -> ModelSampling:
    tokens = node.integer("width") * node.integer("height") / (FLUX_TOKEN * FLUX_TOKEN)
    shifts = node.number("base_shift"), node.number("max_shift")
    return FluxModelSampling(mu=token_mu(tokens, at=(256.0, 4096.0), mu=shifts))


def _ltxv(node: Lowering) -> ModelSampling:
    if "latent" in node.inputs:
        raise node.refusal(
            "latent", "its size isn't known before anything runs; leave it unconnected"
        )
    shifts = node.number("base_shift"), node.number("max_shift")
    return FluxModelSampling(mu=token_mu(USUAL_VIDEO_TOKENS, at=(1024.0, 4096.0), mu=shifts))


NODES: Final[tuple[type[NodeClass], ...]] = (
    _setting(
        "ModelSamplingDiscrete",
        (
            combo("sampling", ("eps", "v_prediction", "lcm", "x0", "img_to_img"), None),
            switch("zsnr", default=False),
        ),
        _discrete,
        "What a model that was trained on a table of noise levels predicts.",
    ),
    _setting(
        "ModelSamplingContinuousEDM",
        (
            combo(
                "sampling",
                ("v_prediction", "edm", "edm_playground_v2.5", "eps", "cosmos_rflow"),
                None,
            ),
            _sigma("sigma_max", 120.0),
            _sigma("sigma_min", 0.002),
        ),
        _edm,
        "Noise levels between two, as EDM has them.",
    ),
    _setting(
        "ModelSamplingContinuousV",
        (
            combo("sampling", ("v_prediction",), None),
            _sigma("sigma_max", 500.0),
            _sigma("sigma_min", 0.03),
        ),
        _angle,
        "Noise levels between two, told to the model as angles.",
    ),
    _setting(
        "ModelSamplingSD3",
        (_shift("shift", 3.0),),
        lambda node: FlowModelSampling(shift=_above_zero(node, "shift")),
        "A rectified flow with shifted timesteps.",
    ),
    _setting(
        "ModelSamplingAuraFlow",
        (_shift("shift", 1.73),),
        lambda node: FlowModelSampling(shift=_above_zero(node, "shift"), multiplier=1.0),
        "A rectified flow with shifted timesteps from 0 to 1.",
    ),
    _setting(
        "ModelSamplingFlux",
        (
            _shift("max_shift", 1.15),
            _shift("base_shift", 0.5),
            integer("width", default=1024, min=16, max=16384, step=8),
            integer("height", default=1024, min=16, max=16384, step=8),
        ),
        _flux,
        "A rectified flow, shifted for a picture of a size.",
    ),
    _setting(
        "ModelSamplingStableCascade",
        (_shift("shift", 2.0),),
        lambda node: CascadeModelSampling(shift=_above_zero(node, "shift")),
        "Stable Cascade's shifted cosine.",
    ),
    _setting(
        "ModelSamplingLTXV",
        (
            _shift("max_shift", 2.05),
            _shift("base_shift", 0.95),
            InputSpec(name="latent", type=LATENT, options={}, is_required=False),
        ),
        _ltxv,
        "A rectified flow, shifted for a video of the usual size.",
        is_v3=True,
        python_module="comfy_extras.nodes_lt",
    ),
)
