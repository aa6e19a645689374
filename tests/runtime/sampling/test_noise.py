"""Noise from seeds, bit for bit ComfyUI's."""

from __future__ import annotations

import pytest
import torch
from kit.goldens import Tensors, each_golden_set, load_json
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.sampling.noise import NoiseStream, initial_noise, sampler_generator


@each_golden_set
def test_initial_noise(golden_set: str) -> None:
    recorded = Tensors(golden_set, "noise.safetensors")
    cases = [
        case
        for case in load_json(golden_set, "noise.json")["prepare_noise"]
        if case["batch_index"] is None and case["dtype"] == "float32"
    ]
    assert {int(case["seed"]) for case in cases} >= {0, 42, 2**64 - 1}
    for case in cases:
        ours = initial_noise(tuple(case["shape"]), int(case["seed"]))
        assert torch.equal(ours, recorded[case["key"]]), case


@each_golden_set
def test_items_take_the_noise_of_their_number(golden_set: str) -> None:
    recorded = Tensors(golden_set, "noise.safetensors")
    cases = [
        case
        for case in load_json(golden_set, "noise.json")["prepare_noise"]
        if case["batch_index"] is not None and case["dtype"] == "float32"
    ]
    assert cases
    for case in cases:
        numbers = tuple(case["batch_index"])
        shape = (len(numbers), *case["shape"][1:])
        ours = initial_noise(shape, int(case["seed"]), numbers)
        assert torch.equal(ours, recorded[case["key"]]), case


@pytest.mark.parametrize("numbers", [(0,), (0, 1, 2), (-1, 0), ()])
def test_there_must_be_a_number_for_each_item(numbers: tuple[int, ...]) -> None:
    with pytest.raises(NodeFailed, match="2 latents"):
        initial_noise((2, 4, 4, 4), 0, numbers)


@each_golden_set
def test_sampler_noise_stream(golden_set: str) -> None:
    recorded = Tensors(golden_set, "noise.safetensors")
    for case in load_json(golden_set, "noise.json")["default_noise_sampler"]:
        like = torch.zeros(tuple(case["shape"]))
        state = sampler_generator(int(case["seed"]))
        for draw in recorded[case["key"]]:
            stream = NoiseStream(state)
            assert torch.equal(stream(like), draw), case
            state = stream.state()


def test_a_stream_leaves_the_state_it_started_from() -> None:
    state = sampler_generator(5)
    before = state.clone()
    first = NoiseStream(state)(torch.zeros(3, 7))
    assert torch.equal(state, before)
    assert torch.equal(NoiseStream(state)(torch.zeros(3, 7)), first)
    assert torch.equal(NoiseStream(state).state(), before)


def test_the_highest_seed_wraps_around() -> None:
    assert torch.equal(sampler_generator(2**64 - 1), torch.Generator().manual_seed(0).get_state())
