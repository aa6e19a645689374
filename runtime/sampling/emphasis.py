"""What a text's weights do to its encoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def weigh(
    hidden: torch.Tensor, empty: torch.Tensor, weights: Sequence[Sequence[float]]
) -> torch.Tensor:
    """Move each token's vector along its difference from the empty text's, by its weight.

    Args:
        hidden: the encoded chunks, [chunks, 77, width].
        empty: the encoded empty text, [77, width]; not looked at if every weight is 1.
        weights: one number per token of each chunk, [chunks][77].

    Returns: the chunks one after another, [1, chunks * 77, width]. A token of weight 1 is as it
    was, bit for bit.
    """
    num_chunks, length, width = hidden.shape
    factors = torch.tensor(weights, dtype=hidden.dtype, device=hidden.device)[:, :, None]
    if not bool((factors == 1.0).all()):
        moved = empty + (hidden - empty) * factors
        hidden = torch.where(factors == 1.0, hidden, moved)
    return hidden.reshape(1, num_chunks * length, width)


def has_weights(weights: Sequence[Sequence[float]]) -> bool:
    """Whether any weight is not 1: only then the empty text must be encoded too."""
    return any(weight != 1.0 for chunk in weights for weight in chunk)
