"""Muon for matrices and kernels, Adam for everything else.

Muon replaces a weight's momentum by the nearest matrix with orthonormal rows or columns, so that
every direction is learned at the same pace.
Source: K. Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024), also for the
coefficients of its Newton-Schulz iteration. Adam: arXiv 1412.6980.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS: Final = 5
MOMENTUM: Final = 0.95
MUON: Final = "muon"
ADAM: Final = "adam"
EPSILON: Final = 1e-8


class Optimiser(torch.optim.Optimizer):
    """The state of a weight: `momentum`, or `first`, `second` and `step`.

    Args:
        matrices: names of weights of two or more dimensions for Muon; all others are Adam's.
        muon_rate, adam_rate: the highest rates; `set_share` sets the share of them that is taken.
    """

    def __init__(
        self,
        weights: Mapping[str, torch.nn.Parameter],
        *,
        matrices: set[str],
        muon_rate: float,
        adam_rate: float,
        betas: tuple[float, float],
    ) -> None:
        groups = [
            {
                "params": [weight for name, weight in weights.items() if (name in matrices) is own],
                "kind": kind,
                "highest": rate,
            }
            for kind, own, rate in ((MUON, True, muon_rate), (ADAM, False, adam_rate))
        ]
        super().__init__([group for group in groups if group["params"]], {"lr": adam_rate})
        self._betas = betas

    def set_share(self, share: float) -> None:
        """Take this share of the highest rates from now on."""
        for group in self.param_groups:
            group["lr"] = share * group["highest"]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # takes no closure
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                if group["kind"] == MUON:
                    self._step_muon(weight, group["lr"])
                else:
                    self._step_adam(weight, group["lr"])

    def _step_muon(self, weight: torch.Tensor, rate: float) -> None:
        state, gradient = self.state[weight], weight.grad
        assert gradient is not None
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"].lerp_(gradient, 1.0 - MOMENTUM)
        ahead = gradient.lerp(momentum, MOMENTUM).flatten(1)
        change = orthogonal(ahead)
        scale = max(1.0, change.shape[0] / change.shape[1]) ** 0.5
        weight.add_(change.reshape(weight.shape), alpha=-rate * scale)

    def _step_adam(self, weight: torch.Tensor, rate: float) -> None:
        state, gradient = self.state[weight], weight.grad
        assert gradient is not None
        if not state:
            state["first"] = torch.zeros_like(weight)
            state["second"] = torch.zeros_like(weight)
            state["step"] = torch.zeros(1)
        state["step"] += 1
        count = float(state["step"])
        low, high = self._betas
        first = state["first"].lerp_(gradient, 1.0 - low)
        second = state["second"].lerp_(gradient.square(), 1.0 - high)
        spread = (second / (1.0 - high**count)).sqrt_().add_(EPSILON)
        weight.addcdiv_(first, spread, value=-rate / (1.0 - low**count))


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """About U V^T of a matrix U S V^T: its singular values become 0.7 to 1.2."""
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.t() if is_tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: torch.Tensor = x.t() if is_tall else x
    return result
