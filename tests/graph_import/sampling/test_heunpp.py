"""Heun++'s weights have no published description: here they follow from ComfyUI's latents."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from kit.goldens import Tensors, each_golden_set, load_json
from kit.toy_runs import guided

KEY = "flow/heunpp2/n6/cfg5"


@each_golden_set
def test_the_weights_fit_the_recorded_steps(golden_set: str) -> None:
    """Least squares over the elements of each step, for the slopes at the sigmas ahead."""
    sigmas = load_json(golden_set, "samplers.json")["runs"][KEY]["sigmas"]
    tensors = Tensors(golden_set, "samplers.safetensors")
    states = [*tensors[f"{KEY}/x"].double(), tensors[f"{KEY}/final"].double()]
    for step, (x, end) in enumerate(pairwise(states)):
        ahead = [sigma for sigma in sigmas[step : step + 3] if sigma > 0.0]
        slopes = []
        for k, sigma in enumerate(ahead):
            slopes.append((x - guided(x, sigma, 5.0).denoised) / sigma)
            if k + 1 < len(ahead):
                x = x + slopes[-1] * (ahead[k + 1] - sigma)
        matrix = torch.stack([slope.flatten() for slope in slopes], dim=1)
        moved = (end - states[step]).flatten() / (sigmas[step + 1] - sigmas[step])
        fitted = torch.linalg.lstsq(matrix, moved.unsqueeze(1)).solution.flatten().tolist()
        later = [sigma / (len(ahead) * sigmas[0]) for sigma in ahead[1:]]
        assert fitted == pytest.approx([1.0 - sum(later), *later], abs=5e-5)
