"""One recorded case of ComfyUI: a name, and a comparison of our numbers with the recorded ones."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(slots=True, frozen=True)
class Outcome:
    """How far our numbers are from the recorded ones, and how far they may be.

    Args:
        error: the largest deviation, in the unit of `tolerance`; infinite where shapes, types or
            texts differ.
        note: what differs, where a number doesn't say it.
    """

    error: float
    tolerance: float
    note: str = ""

    @property
    def passes(self) -> bool:
        """Whether the error is within the tolerance; never for not-a-number."""
        return self.error <= self.tolerance


@dataclass(slots=True, frozen=True)
class Case:
    """A recorded case.

    Args:
        name: `samplers/eps/euler/n6/cfg5`: the golden file, then its key.
        run: computes and compares; raises where our code does.
    """

    name: str
    run: Callable[[], Outcome]


Cases = Callable[[Path], Iterator[Case]]


def worst(outcomes: list[Outcome]) -> Outcome:
    """The outcome with the largest error relative to its tolerance. Raises: ValueError: none."""
    return max(outcomes, key=lambda outcome: (_ratio(outcome), outcome.error))


def equal(ours: Any, recorded: Any) -> Outcome:
    """Texts, numbers or structures that must be the same."""
    if ours == recorded:
        return Outcome(0.0, 0.0)
    return Outcome(float("inf"), 0.0, f"{ours!r} is not {recorded!r}"[:300])


def close(ours: torch.Tensor, recorded: torch.Tensor, tolerance: float) -> Outcome:
    """The largest absolute difference of two tensors; infinite where their shapes differ.

    Both may be not-a-number or the same infinity at the same places.
    """
    if ours.shape != recorded.shape:
        note = f"shape {list(ours.shape)} is not {list(recorded.shape)}"
        return Outcome(float("inf"), tolerance, note)
    ours, recorded = ours.double(), recorded.double()
    same = (ours == recorded) | (ours.isnan() & recorded.isnan())
    difference = torch.where(same, 0.0, (ours - recorded).abs())
    error = float(difference.nan_to_num(nan=float("inf")).max()) if difference.numel() else 0.0
    return Outcome(error, tolerance)


def goldens_folder() -> Path:
    """Where the recorded numbers are: NODELOOM_GOLDENS, or beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "goldens"
    return Path(os.environ.get("NODELOOM_GOLDENS") or beside)


def exceptions_at(path: Path) -> Mapping[str, str]:
    """Case name -> the reason why it may fail.

    The file has a table `[reasons]` of names and texts, `"samplers/eps/foo" = "because ..."`.
    """
    reasons: dict[str, str] = tomllib.loads(path.read_text("utf-8")).get("reasons", {})
    return reasons


def _ratio(outcome: Outcome) -> float:
    if outcome.error != outcome.error:
        return float("inf")
    if outcome.tolerance:
        return outcome.error / outcome.tolerance
    return 0.0 if outcome.error == 0.0 else float("inf")
