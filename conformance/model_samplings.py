"""The model samplings that ComfyUI's recordings name, as ours."""

from __future__ import annotations

from typing import Any, Final

from nodeloom.graph_import.sampling.model_sampling import ModelSampling
from nodeloom.graph_import.sampling.model_sampling_cascade import CascadeModelSampling
from nodeloom.graph_import.sampling.model_sampling_continuous import (
    AngleModelSampling,
    CosmosModelSampling,
    EdmModelSampling,
)
from nodeloom.graph_import.sampling.model_sampling_discrete import DiscreteModelSampling
from nodeloom.graph_import.sampling.model_sampling_flow import FlowModelSampling, FluxModelSampling
from nodeloom.graph_import.sampling.predictions import Prediction

PREDICTIONS: Final = {
    "EPS": Prediction.EPS,
    "V_PREDICTION": Prediction.V,
    "X0": Prediction.X0,
    "EDM": Prediction.EDM,
    "IMG_TO_IMG": Prediction.IMG_TO_IMG,
    "LCM": Prediction.LCM,
}
BETAS: Final = {
    "v_b0.02_a0.0001": {"beta_start": 0.0001, "beta_end": 0.02},
    "v_b0.018_a0.00085": {"beta_end": 0.018},
    "v_b0.03_a0.00085": {"beta_end": 0.03},
    "eps_bssqrt_linear_b0.02_a0.0001_t1000": {
        "beta_start": 0.0001,
        "beta_end": 0.02,
        "is_linear": True,
    },
}


def recorded_sampling(name: str, record: Any) -> ModelSampling:
    """Ours of an entry of `model_samplings`. Raises: KeyError: it is of a kind not known here."""
    prediction = PREDICTIONS.get(record["prediction"], Prediction.EPS)
    match record["time"]:
        case "ModelSamplingDiscrete" | "ModelSamplingDiscreteDistilled" as time:
            return DiscreteModelSampling(
                prediction=prediction,
                is_zero_snr=record["zsnr"],
                stride=20 if time.endswith("Distilled") else 1,
                **BETAS.get(name, {}),
            )
        case "ModelSamplingDiscreteFlow":
            return FlowModelSampling(shift=record["shift"], multiplier=record["multiplier"])
        case "ModelSamplingFlux":
            return FluxModelSampling(mu=record["shift"])
        case "StableCascadeSampling":
            return CascadeModelSampling(shift=record["shift"])
    low, high = (round(record[key], 6) for key in ("sigma_min", "sigma_max"))
    low, high = round(low, 3), round(high, 2)
    match record["time"]:
        case "ModelSamplingContinuousEDM":
            data = record["sigma_data"]
            return EdmModelSampling(
                prediction=prediction, sigma_min=low, sigma_max=high, sigma_data=data
            )
        case "ModelSamplingContinuousV":
            return AngleModelSampling(sigma_min=low, sigma_max=high)
        case "ModelSamplingCosmosRFlow":
            return CosmosModelSampling(sigma_min=low, sigma_max=high)
        case time:
            raise KeyError(time)
