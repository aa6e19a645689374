from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from nodeloom.runtime.data_plane.layout import ALIGNMENT_BYTES
from nodeloom.runtime.data_plane.local import LocalPlane
from nodeloom.runtime.errors import InputsLost
from nodeloom.runtime.ids import ExecutorId


@pytest.fixture
def plane() -> LocalPlane:
    return LocalPlane(ExecutorId("e"), "i", "ipc://none")


def test_a_whole_canonical_tensor_is_handed_on_without_a_copy(plane: LocalPlane) -> None:
    tensor = torch.zeros(64, 64)
    assert plane.get(plane.put(tensor)).data_ptr() == tensor.data_ptr()


def test_a_view_is_copied_so_that_its_base_may_change(plane: LocalPlane) -> None:
    base = torch.zeros(4, 64, 64)
    ref = plane.put(base[1])
    base.fill_(1.0)
    assert plane.get(ref).sum() == 0
    assert plane.held_bytes == 64 * 64 * 4  # and not the base's


def test_odd_strides_of_dimensions_of_size_one_are_straightened(plane: LocalPlane) -> None:
    tensor = torch.zeros(1, 1, 64, 64).to(memory_format=torch.channels_last)
    assert tensor.is_contiguous()  # so torch says, and picks other kernels all the same
    assert tensor.stride() != torch.zeros(1, 1, 64, 64).stride()
    assert plane.get(plane.put(tensor)).stride() == torch.zeros(1, 1, 64, 64).stride()


def test_memory_that_is_not_aligned_is_copied(plane: LocalPlane) -> None:
    raw = np.zeros(8192 + ALIGNMENT_BYTES, dtype=np.uint8)
    start = 16 - raw.ctypes.data % 16 + 16
    start += 16 if (raw.ctypes.data + start) % ALIGNMENT_BYTES == 0 else 0
    tensor = torch.from_numpy(raw[start : start + 8192])
    assert tensor.data_ptr() % ALIGNMENT_BYTES != 0
    assert plane.get(plane.put(tensor)).data_ptr() % ALIGNMENT_BYTES == 0


def test_tensors_with_gradients_or_made_in_inference_mode_can_be_put(plane: LocalPlane) -> None:
    learned = torch.ones(64, 64, requires_grad=True)
    assert not plane.get(plane.put(learned)).requires_grad
    with torch.inference_mode():
        inferred = torch.ones(64, 64) * 2
        transposed = torch.arange(4096.0).reshape(2, 2048).T
    assert torch.equal(plane.get(plane.put(inferred)), torch.full((64, 64), 2.0))
    assert plane.get(plane.put(transposed)).shape == (2048, 2)


def test_an_inline_ref_with_the_wrong_number_of_bytes_is_lost(plane: LocalPlane) -> None:
    ref = plane.put(torch.zeros(3))
    for wrong in (
        msgspec.structs.replace(ref, shape=(4,)),
        msgspec.structs.replace(ref, dtype="float64"),
        msgspec.structs.replace(ref, dtype="object"),
        msgspec.structs.replace(ref, shape=(-3, -1)),
    ):
        with pytest.raises(InputsLost):
            plane.get(wrong)


def test_a_dtype_that_cannot_travel_is_refused(plane: LocalPlane) -> None:
    with pytest.raises(TypeError, match="e4m3fnuz"):
        plane.put(torch.zeros(8).to(torch.float8_e4m3fnuz))
