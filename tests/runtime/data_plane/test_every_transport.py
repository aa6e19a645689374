"""What any transport must do: a new one adds its name to the `pair` fixture."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import torch
from kit.tensor_peer import make_tensor
from nodeloom.runtime.data_plane.layout import ALIGNMENT_BYTES, DTYPES
from nodeloom.runtime.errors import InputsLost
from nodeloom.runtime.protocol import INLINE_BYTES, TensorId

Pair = Any  # (producer, plane); the fixture in conftest.py names the types

BIG = [2, 50, 100]  # beyond INLINE_BYTES in every dtype
SHAPES: list[list[int]] = [[], [0], [3, 0, 5], [1], [7, 3], [1, 4, 8, 8], BIG]


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal in shape, dtype and every byte, NaNs included."""
    return (
        left.shape == right.shape
        and left.dtype == right.dtype
        and torch.equal(
            left.contiguous().reshape(-1).view(torch.uint8),
            right.contiguous().reshape(-1).view(torch.uint8),
        )
    )


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_tensor_arrives_bit_for_bit(pair: Pair, dtype: str, shape: list[int]) -> None:
    producer, plane = pair
    ref = producer.put(dtype, shape, seed=11)
    tensor = plane.get(ref)
    assert same_bits(tensor, make_tensor(dtype, shape, 11))
    assert tensor.stride() == torch.empty(shape).stride()
    assert tensor.data_ptr() % ALIGNMENT_BYTES == 0
    producer.release(ref.key)
    plane.release([ref.key])
    assert (producer.held_bytes, plane.held_bytes) == (0, 0)


def test_a_tensor_of_several_chunks_arrives_bit_for_bit(pair: Pair) -> None:
    producer, plane = pair
    shape = [41, 1024, 1024]  # uint8: two full chunks and a part of one
    ref = producer.put("uint8", shape, seed=3)
    assert same_bits(plane.get(ref), make_tensor("uint8", shape, 3))
    producer.release(ref.key)
    plane.release([ref.key])


def test_a_transposed_tensor_arrives_in_canonical_layout(pair: Pair) -> None:
    producer, plane = pair
    ref = producer.put("float32", [40, 50, 60], seed=5, how="transposed")
    tensor = plane.get(ref)
    assert same_bits(tensor, make_tensor("float32", [40, 50, 60], 5).transpose(0, -1))
    assert tensor.is_contiguous()
    producer.release(ref.key)
    plane.release([ref.key])


def test_small_tensors_travel_in_their_refs_and_hold_nothing(pair: Pair) -> None:
    producer, plane = pair
    ref = producer.put("uint8", [INLINE_BYTES])
    assert ref.inline is not None
    assert producer.held_bytes == 0
    plane.get(ref)
    assert plane.held_bytes == 0
    larger = producer.put("uint8", [INLINE_BYTES + 1])
    assert larger.inline is None
    assert producer.held_bytes == INLINE_BYTES + 1
    producer.release(larger.key)


def test_getting_twice_gives_the_same_memory_once_accounted(pair: Pair) -> None:
    producer, plane = pair
    ref = producer.put("float32", BIG)
    first, second = plane.get(ref), plane.get(ref)
    assert first.data_ptr() == second.data_ptr()
    assert plane.held_bytes == first.nbytes
    producer.release(ref.key)
    plane.release([ref.key])
    assert plane.held_bytes == 0
    assert same_bits(first, make_tensor("float32", BIG, 0))  # a reader keeps what it has


def test_a_released_tensor_is_lost_and_named(pair: Pair) -> None:
    producer, plane = pair
    ref = producer.put("float32", BIG)
    producer.release(ref.key)
    with pytest.raises(InputsLost) as caught:
        plane.get(ref)
    assert caught.value.details["keys"] == (ref.key,)


def test_unknown_keys_may_be_released(pair: Pair) -> None:
    producer, plane = pair
    ref = producer.put("float32", BIG)
    producer.release(ref.key)
    producer.release(ref.key)
    plane.release([ref.key, msgspec.structs.replace(ref.key, tensor_id=TensorId(10**9))])
    assert (producer.held_bytes, plane.held_bytes) == (0, 0)


def test_a_ref_of_another_incarnation_is_lost(pair: Pair) -> None:
    producer, plane = pair
    ref = producer.put("float32", BIG)
    stale = msgspec.structs.replace(ref, key=msgspec.structs.replace(ref.key, incarnation="before"))
    with pytest.raises(InputsLost):
        plane.get(stale)
    assert plane.get(ref).shape == torch.Size(BIG)  # the true one is still there
    producer.release(ref.key)
    plane.release([ref.key])


def test_a_deferred_tensor_is_fetched_at_its_first_use_and_once(pair: Pair) -> None:
    producer, plane = pair
    ref = producer.put("float32", BIG, seed=8)
    before_bytes = plane.held_bytes
    fetch = plane.deferred(ref)
    assert plane.held_bytes == before_bytes
    first = fetch()
    producer.release(ref.key)
    assert fetch() is first
    assert same_bits(first, make_tensor("float32", BIG, 8))
    plane.release([ref.key])
    assert plane.held_bytes == 0


def test_many_threads_get_the_same_tensors(pair: Pair) -> None:
    producer, plane = pair
    refs = [producer.put("int64", BIG, seed=seed) for seed in range(4)]
    with ThreadPoolExecutor(8) as pool:
        tensors = list(pool.map(plane.get, refs * 8))
    for index, tensor in enumerate(tensors):
        assert same_bits(tensor, make_tensor("int64", BIG, index % 4))
    assert plane.held_bytes == sum(tensor.nbytes for tensor in tensors[:4])
    producer.release(*(ref.key for ref in refs))
    plane.release([ref.key for ref in refs])
    assert (producer.held_bytes, plane.held_bytes) == (0, 0)
