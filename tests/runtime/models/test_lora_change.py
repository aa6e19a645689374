"""The arithmetic of every format against what it stands for: products of small networks."""

from __future__ import annotations

import pytest
import torch
from nodeloom.runtime.models.lora_change import Misshapen, changed, changed_bias, is_complete
from nodeloom.runtime.models.lora_file import Slot
from torch.nn.functional import conv2d

Tensors = dict[Slot, torch.Tensor]
RANK = 2


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + 1000 * len(shape) + sum(shape))
    return torch.randn(shape, generator=generator)


def close(given: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(given, expected, rtol=1e-5, atol=1e-5)


def test_a_lora_adds_its_product_scaled_by_alpha_over_rank_and_strength() -> None:
    weight, up, down = random(6, 5), random(6, RANK), random(RANK, 5)
    tensors = {Slot.UP: up, Slot.DOWN: down, Slot.ALPHA: torch.tensor(3.0)}
    assert close(changed(weight, tensors, -0.5), weight - 0.5 * 3.0 / RANK * (up @ down))
    assert close(changed(weight, {Slot.UP: up, Slot.DOWN: down}, 2.0), weight + 2.0 * (up @ down))


def test_a_lora_in_half_precision_is_multiplied_in_single() -> None:
    weight, up, down = random(6, 5), random(6, RANK).half(), random(RANK, 5).half()
    given = changed(weight, {Slot.UP: up, Slot.DOWN: down}, 1.0)
    assert given.dtype is torch.float32
    assert close(given, weight + up.float() @ down.float())


def test_a_locon_is_two_convolutions_in_a_row() -> None:
    weight, up, down = random(6, 5, 3, 3), random(6, RANK, 1, 1), random(RANK, 5, 3, 3)
    picture = random(1, 5, 7, 7)
    delta = changed(weight, {Slot.UP: up, Slot.DOWN: down}, 1.0) - weight
    assert close(conv2d(picture, delta), conv2d(conv2d(picture, down), up))


def test_a_locon_with_a_core_is_three_convolutions_in_a_row() -> None:
    weight = random(6, 5, 3, 3)
    up, mid, down = random(6, RANK, 1, 1), random(RANK, 3, 3, 3), random(3, 5, 1, 1)
    picture = random(1, 5, 7, 7)
    tensors = {Slot.UP: up, Slot.MID: mid, Slot.DOWN: down}
    delta = changed(weight, tensors, 1.0) - weight
    assert close(conv2d(picture, delta), conv2d(conv2d(conv2d(picture, down), mid), up))


def test_a_loha_is_the_product_of_two_products_element_by_element() -> None:
    weight = random(6, 5, 3, 3)
    a1, a2 = random(6, RANK), random(6, RANK, seed=1)
    b1, b2 = random(RANK, 45), random(RANK, 45, seed=1)
    tensors = {
        Slot.HADA_W1_A: a1,
        Slot.HADA_W1_B: b1,
        Slot.HADA_W2_A: a2,
        Slot.HADA_W2_B: b2,
        Slot.ALPHA: torch.tensor(1.0),
    }
    expected = ((a1 @ b1) * (a2 @ b2)).reshape(weight.shape) / RANK
    assert close(changed(weight, tensors, 1.0), weight + expected)


def test_a_loha_with_cores_rebuilds_each_kernel() -> None:
    weight = random(6, 5, 3, 3)
    cores = [random(RANK, RANK, 3, 3, seed=seed) for seed in (0, 1)]
    outer = [random(RANK, 6, seed=seed) for seed in (0, 1)]
    inner = [random(RANK, 5, seed=seed) for seed in (0, 1)]
    tensors = {
        Slot.HADA_T1: cores[0],
        Slot.HADA_W1_A: outer[0],
        Slot.HADA_W1_B: inner[0],
        Slot.HADA_T2: cores[1],
        Slot.HADA_W2_A: outer[1],
        Slot.HADA_W2_B: inner[1],
    }
    kernels = [
        sum(
            outer[n][a, :, None, None, None] * inner[n][b, None, :, None, None] * cores[n][a, b]
            for a in range(RANK)
            for b in range(RANK)
        )
        for n in (0, 1)
    ]
    assert close(changed(weight, tensors, 1.0), weight + kernels[0] * kernels[1])


def test_a_lokr_is_a_kronecker_product_and_scaled_only_where_it_is_decomposed() -> None:
    weight, w1, w2 = random(6, 4), random(2, 2), random(3, 2)
    tensors: Tensors = {Slot.LOKR_W1: w1, Slot.LOKR_W2: w2, Slot.ALPHA: torch.tensor(8.0)}
    assert close(changed(weight, tensors, 1.0), weight + torch.kron(w1, w2))
    a, b = random(3, RANK), random(RANK, 2)
    tensors = {
        Slot.LOKR_W1: w1,
        Slot.LOKR_W2_A: a,
        Slot.LOKR_W2_B: b,
        Slot.ALPHA: torch.tensor(8.0),
    }
    assert close(changed(weight, tensors, 1.0), weight + 8.0 / RANK * torch.kron(w1, a @ b))


def test_a_lokr_of_a_convolution_may_have_a_core() -> None:
    weight, w1 = random(6, 4, 3, 3), random(2, 2)
    core, outer, inner = random(RANK, RANK, 3, 3), random(RANK, 3), random(RANK, 2)
    tensors = {
        Slot.LOKR_W1: w1,
        Slot.LOKR_T2: core,
        Slot.LOKR_W2_A: outer,
        Slot.LOKR_W2_B: inner,
    }
    w2 = torch.einsum("abhw,ao,bi->oihw", core, outer, inner)
    delta = changed(weight, tensors, 1.0) - weight
    for row in range(2):
        for column in range(2):
            block = delta[row * 3 : row * 3 + 3, column * 2 : column * 2 + 2]
            assert close(block, w1[row, column] * w2)


def test_a_dora_gives_every_output_a_magnitude_of_its_own() -> None:
    weight, up, down, scale = random(6, 5), random(6, RANK), random(RANK, 5), random(6, 1).abs()
    tensors = {Slot.UP: up, Slot.DOWN: down, Slot.DORA_SCALE: scale}
    norm = weight.norm(dim=1, keepdim=True)
    expected = (weight + up @ down) * scale / norm
    assert close(changed(weight, tensors, 1.0), expected)
    assert close(changed(weight, tensors, 0.5), (weight + expected) / 2)
    flat = tensors | {Slot.DORA_SCALE: scale.flatten()}
    assert close(changed(weight, flat, 1.0), expected)


def test_a_dora_with_a_magnitude_per_input_divides_by_the_moved_columns() -> None:
    weight, up, down, scale = random(6, 5), random(6, RANK), random(RANK, 5), random(1, 5).abs()
    moved = weight + up @ down
    tensors = {Slot.UP: up, Slot.DOWN: down, Slot.DORA_SCALE: scale}
    expected = moved * scale / moved.norm(dim=0, keepdim=True)
    assert close(changed(weight, tensors, 1.0), expected)


def test_differences_are_added_and_whole_weights_put_in_place() -> None:
    norm, diff = random(5), random(5, seed=1)
    assert close(changed(norm, {Slot.DIFF: diff}, -2.0), norm - 2.0 * diff)
    assert close(changed_bias(norm, diff, 0.5), norm + 0.5 * diff)
    assert close(changed(norm, {Slot.SET_WEIGHT: diff}, 0.5), diff)


def test_the_weight_itself_is_left_alone() -> None:
    weight = random(6, 5)
    before = weight.clone()
    changed(weight, {Slot.UP: random(6, RANK), Slot.DOWN: random(RANK, 5)}, 1.0)
    assert torch.equal(weight, before)


@pytest.mark.parametrize(
    "tensors",
    [
        {Slot.UP: random(7, RANK), Slot.DOWN: random(RANK, 5)},
        {Slot.UP: random(5, RANK), Slot.DOWN: random(RANK, 6)},  # as many numbers, turned over
        {Slot.UP: random(6, RANK), Slot.DOWN: random(3, 5)},
        {Slot.UP: random(6), Slot.DOWN: random(RANK, 5)},
        {Slot.UP: random(6, 0), Slot.DOWN: random(0, 5)},
        {Slot.UP: random(6, RANK), Slot.DOWN: random(RANK, 5), Slot.MID: random(2, 2, 3, 3)},
        {Slot.UP: random(6, RANK), Slot.DOWN: random(RANK, 5), Slot.ALPHA: random(3)},
        {Slot.UP: random(6, RANK), Slot.DOWN: random(RANK, 5), Slot.DORA_SCALE: random(4, 1)},
        {Slot.UP: random(6, RANK), Slot.DOWN: random(RANK, 5), Slot.DORA_SCALE: torch.tensor(1.0)},
        {Slot.LOKR_W1: random(100, 100), Slot.LOKR_W2: random(100, 100)},
        {Slot.LOKR_W1: random(2, 2), Slot.LOKR_W2_A: random(100, 1), Slot.LOKR_W2_B: random(1, 50)},
        {Slot.LOKR_W1: torch.tensor(1.0), Slot.LOKR_W2: random(6, 5)},
        {Slot.DIFF: random(5, 6)},
        {Slot.DIFF: torch.tensor(1.0)},
    ],
)
def test_tensors_of_another_shape_are_refused(tensors: Tensors) -> None:
    with pytest.raises(Misshapen):
        changed(random(6, 5), tensors, 1.0)


def test_half_a_product_is_not_complete() -> None:
    assert not is_complete(frozenset({Slot.UP, Slot.ALPHA}))
    assert not is_complete(frozenset({Slot.LOKR_W1, Slot.LOKR_W2_A}))
    assert is_complete(frozenset({Slot.LOKR_W1, Slot.LOKR_W2_A, Slot.LOKR_W2_B}))
    assert is_complete(frozenset({Slot.DIFF}))
