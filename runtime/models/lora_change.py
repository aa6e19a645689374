"""The arithmetic of LoRA and its kin: a weight and a file's tensors give the changed weight.

All in float32, on the weight's device. Shapes are looked at before anything is multiplied, so a
file can't ask for more memory than the weight has.
Sources: LoRA (arXiv 2106.09685), LyCORIS (arXiv 2309.14859): LoCon, LoHa, LoKr; DoRA (arXiv
2402.09353); what ComfyUI makes of them: design notes on models, section 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import torch

from .lora_file import Slot

Tensors = Mapping[Slot, torch.Tensor]

_EPSILON: Final = torch.finfo(torch.float32).eps
_LOHA: Final = (Slot.HADA_W1_A, Slot.HADA_W1_B, Slot.HADA_W2_A, Slot.HADA_W2_B)
_WHOLE: Final = frozenset({Slot.DIFF, Slot.SET_WEIGHT})


class Misshapen(Exception):
    """The file's tensors don't fit the weight."""


def is_complete(slots: frozenset[Slot]) -> bool:
    """Whether these tensors together say how a weight changes."""
    return _has_product(slots) or not slots.isdisjoint(_WHOLE)


def changed(weight: torch.Tensor, tensors: Tensors, strength: float) -> torch.Tensor:
    """W + strength * change, as a new tensor; `weight` is float32 and left untouched.

    Raises: Misshapen.
    """
    given: Tensors = {
        slot: tensor.to(weight.device, torch.float32)
        for slot, tensor in tensors.items()
        if slot is not Slot.ALPHA
    }
    if Slot.SET_WEIGHT in given:
        return _fit(given[Slot.SET_WEIGHT], weight).clone()
    if _has_product(frozenset(given)):
        product, rank = _product(weight, given)
        factor = _alpha_factor(tensors.get(Slot.ALPHA), rank)
        if Slot.DORA_SCALE in given:
            weight = _decomposed(weight, product * factor, given[Slot.DORA_SCALE], strength)
        else:
            weight = weight + product * (strength * factor)
    if Slot.DIFF in given:
        weight = weight + _fit(given[Slot.DIFF], weight) * strength
    return weight


def changed_bias(bias: torch.Tensor, diff: torch.Tensor, strength: float) -> torch.Tensor:
    """A bias with its difference added. Raises: Misshapen."""
    return bias + _fit(diff.to(bias.device, torch.float32), bias) * strength


def changed_share(
    part: torch.Tensor, tensors: Tensors, strength: float, share: int, num_shares: int
) -> torch.Tensor:
    """A weight or bias after a change of a larger one, of whose rows it is an equal share.

    Each row changes by itself, so zeros stand for the others. DoRA's norms of columns would need
    all rows: such a change fits nothing here. Raises: Misshapen.
    """
    whole = part.new_zeros(len(part) * num_shares, *part.shape[1:])
    whole[share * len(part) : (share + 1) * len(part)] = part
    scale = tensors.get(Slot.DORA_SCALE)
    _require(scale is None or scale.numel() == len(whole))
    if Slot.DIFF_B in tensors:
        whole = changed_bias(whole, tensors[Slot.DIFF_B], strength)
    else:
        whole = changed(whole, tensors, strength)
    return whole.chunk(num_shares)[share].clone()


def _has_product(slots: frozenset[Slot]) -> bool:
    def decomposed(number: int) -> bool:
        whole = Slot(f"lokr_w{number}")
        return whole in slots or {Slot(f"{whole}_a"), Slot(f"{whole}_b")} <= slots

    return {Slot.UP, Slot.DOWN} <= slots or set(_LOHA) <= slots or (decomposed(1) and decomposed(2))


def _product(weight: torch.Tensor, tensors: Tensors) -> tuple[torch.Tensor, int | None]:
    """The change in the weight's shape before alpha, and the rank that alpha is divided by."""
    if Slot.UP in tensors:
        return _lora(weight, tensors)
    if Slot.HADA_W1_A in tensors:
        return _loha(weight, tensors)
    return _lokr(weight, tensors)


def _lora(weight: torch.Tensor, tensors: Tensors) -> tuple[torch.Tensor, int]:
    """up @ down; of a convolution, with `mid` the kernel between two 1x1 convolutions."""
    up, down = tensors[Slot.UP], tensors[Slot.DOWN]
    rank = _size(down, 0)
    mid = tensors.get(Slot.MID)
    if mid is not None:
        _require(mid.dim() == 4 and up.dim() >= 2 and down.dim() >= 2)
        return _tucker(weight, mid, up.flatten(1).t(), down.flatten(1)), rank
    up, down = _matrix(up), _matrix(down)
    _require(up.shape[1] == rank and up.shape[0] == weight.shape[0])
    _require(up.shape[0] * down.shape[1] == weight.numel())
    return (up @ down).reshape(weight.shape), rank


def _loha(weight: torch.Tensor, tensors: Tensors) -> tuple[torch.Tensor, int]:
    """(w1_a @ w1_b) * (w2_a @ w2_b), each with a Tucker core for convolutions."""
    factors = []
    for core, left, right in ((Slot.HADA_T1, *_LOHA[:2]), (Slot.HADA_T2, *_LOHA[2:])):
        a, b = tensors[left], tensors[right]
        if core in tensors:
            factors.append(_tucker(weight, tensors[core], a, b))
        else:
            _require(a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0])
            _require(a.shape[0] == weight.shape[0])
            _require(a.shape[0] * b.shape[1] == weight.numel())
            factors.append((a @ b).reshape(weight.shape))
    return factors[0] * factors[1], _size(tensors[Slot.HADA_W1_B], 0)


def _lokr(weight: torch.Tensor, tensors: Tensors) -> tuple[torch.Tensor, int | None]:
    """kron(w1, w2), either of which may be a product itself; only then there is a rank."""
    first, first_rank = _factor(weight, tensors, Slot.LOKR_W1, Slot.LOKR_W1_A, Slot.LOKR_W1_B)
    second, second_rank = _factor(weight, tensors, Slot.LOKR_W2, Slot.LOKR_W2_A, Slot.LOKR_W2_B)
    _require(first.dim() == 2 and second.dim() in (2, 4))
    _require(first.shape[0] * second.shape[0] == weight.shape[0])
    _require(first.numel() * second.numel() == weight.numel())
    if second.dim() == 4:
        first = first[:, :, None, None]
    product = torch.kron(first.contiguous(), second.contiguous()).reshape(weight.shape)
    return product, first_rank if second_rank is None else second_rank


def _factor(
    weight: torch.Tensor, tensors: Tensors, whole: Slot, left: Slot, right: Slot
) -> tuple[torch.Tensor, int | None]:
    """One factor of a Kronecker product, and its rank if it is decomposed."""
    if whole in tensors:
        return tensors[whole], None
    a, b = tensors[left], tensors[right]
    core = tensors.get(Slot.LOKR_T2) if whole is Slot.LOKR_W2 else None
    if core is not None:
        return _tucker_kernel(weight, core, a, b), _size(b, 0)
    _require(a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0])
    _require(a.shape[0] * b.shape[1] <= weight.numel())
    return a @ b, _size(b, 0)


def _tucker(
    weight: torch.Tensor, core: torch.Tensor, outer: torch.Tensor, inner: torch.Tensor
) -> torch.Tensor:
    kernel = _tucker_kernel(weight, core, outer, inner)
    _require(kernel.shape == weight.shape)
    return kernel


def _tucker_kernel(
    weight: torch.Tensor, core: torch.Tensor, outer: torch.Tensor, inner: torch.Tensor
) -> torch.Tensor:
    """A kernel [O, I, h, w] from its core [a, b, h, w], outer [a, O] and inner [b, I]."""
    _require(core.dim() == 4 and outer.dim() == inner.dim() == 2)
    _require(core.shape[0] == outer.shape[0] and core.shape[1] == inner.shape[0])
    num_outer, num_inner = outer.shape[1], inner.shape[1]
    _require(num_outer * num_inner * math.prod(core.shape[2:]) <= weight.numel())
    return torch.einsum("abhw,ao,bi->oihw", core, outer, inner)


def _decomposed(
    weight: torch.Tensor, delta: torch.Tensor, scale: torch.Tensor, strength: float
) -> torch.Tensor:
    """DoRA: the direction of W + delta with a magnitude of its own.

    `scale` holds one number per output, over the norm of W's rows, or (in its second dimension) one
    per input column, over the norm of the columns of W + delta.
    """
    _require(weight.dim() >= 2 and scale.dim() >= 1)
    moved = weight + delta
    ones = [1] * (weight.dim() - 1)
    if scale.dim() == 1 or scale.shape[0] == weight.shape[0]:
        _require(scale.numel() == weight.shape[0])
        rows, shape = weight, (-1, *ones)
    else:
        _require(scale.numel() == weight.shape[1])
        rows, shape = moved.transpose(0, 1), (1, -1, *ones[1:])
    norm: torch.Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1).reshape(shape)
    scale = scale.reshape(shape)
    return weight + (moved * (scale / (norm + _EPSILON)) - weight) * strength


def _alpha_factor(alpha: torch.Tensor | None, rank: int | None) -> float:
    if alpha is None or rank is None:
        return 1.0
    _require(alpha.numel() == 1)
    return float(alpha) / rank


def _fit(tensor: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    _require(tensor.numel() == weight.numel() and _size(tensor, 0) == weight.shape[0])
    return tensor.reshape(weight.shape)


def _matrix(tensor: torch.Tensor) -> torch.Tensor:
    _require(tensor.dim() >= 2)
    return tensor.flatten(1)


def _size(tensor: torch.Tensor, dim: int) -> int:
    _require(tensor.dim() > dim and tensor.numel() > 0)
    return tensor.shape[dim]


def _require(holds: bool) -> None:
    if not holds:
        raise Misshapen
