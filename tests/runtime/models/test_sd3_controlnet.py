"""ControlNets of SD3: their residuals come between the transformer's blocks, as late as needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kit.checkpoints import load_model
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.models.headers import DENOISER_PREFIX, inspect_part
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.tiny import write_spec
from nodeloom.runtime.models.tiny_sd3 import MmditSize, mmdit_spec, write_tiny_sd3_controlnet
from nodeloom.runtime.models.weight_spec import Spec
from nodeloom.runtime.values import CallResiduals

WIDTH, POOLED = 32, 24
SIZE = MmditSize(num_blocks=5, context=WIDTH, pooled=POOLED, positions=16)
NUM_CONTROL_BLOCKS = 2


@pytest.fixture(scope="module")
def denoiser(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("models") / "sd3.safetensors"
    spec = {DENOISER_PREFIX + name: entry for name, entry in mmdit_spec(SIZE).items()}
    write_spec(path, Spec(spec), 0)
    return load_model(path, Role.DENOISER)


@pytest.fixture(scope="module")
def controlnet(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("models") / "controlnet.safetensors"
    write_tiny_sd3_controlnet(path, size=SIZE, num_blocks=NUM_CONTROL_BLOCKS)
    info = inspect_part(path)
    key = ModelKey(role=Role.CONTROLNET, family=info.family, file=info.file, dtype="float32")
    model = build(ModelRef(key=key))
    model.load("cpu")
    return model


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def call(*, items: int = 1, sigma: float = 0.6, seed: int = 0) -> dict[str, Any]:
    return {
        "x": noise(items, 16, 8, 8, seed=seed),
        "sigma": sigma,
        "context": noise(1, 77, WIDTH, seed=1),
        "pooled": noise(1, POOLED, seed=2),
    }


def hinted(one: dict[str, Any], seed: int = 3) -> dict[str, Any]:
    return {**one, "hint": noise(*one["x"].shape, seed=seed)}


def residuals(model: Model, one: dict[str, Any]) -> CallResiduals:
    given = model.execute(**one)["residuals"]
    assert isinstance(given, CallResiduals)
    return given


def denoised(model: Model, one: dict[str, Any], **more: Any) -> torch.Tensor:
    tensor = model.execute(**one, **more)["denoised"]
    assert isinstance(tensor, torch.Tensor)
    return tensor


@pytest.fixture
def given_at_the_call(
    denoiser: Any,
) -> Callable[[dict[str, Any], tuple[torch.Tensor, ...]], torch.Tensor]:
    """The denoiser with residuals handed over as diffusers has it: all at once, at its call."""

    def run(one: dict[str, Any], blocks: tuple[torch.Tensor, ...]) -> torch.Tensor:
        module = denoiser._module
        plain = module.forward
        module.forward = lambda **given: plain(**given, block_controlnet_hidden_states=blocks)
        try:
            return denoised(denoiser, one)
        finally:
            module.forward = plain

    return run


def test_a_controlnet_gives_a_tensor_of_tokens_for_each_of_its_blocks(controlnet: Model) -> None:
    given = residuals(controlnet, hinted(call(items=2)))
    assert [tuple(block.shape) for block in given.blocks] == [(2, 16, SIZE.width)] * 2


def test_hint_and_noise_level_have_a_say_but_the_pooled_vector_has_none(controlnet: Model) -> None:
    one = hinted(call())
    first = residuals(controlnet, one).blocks[-1]
    others = ({**one, "pooled": noise(1, POOLED, seed=9)}, hinted(one, 9), {**one, "sigma": 0.1})
    same = [torch.equal(residuals(controlnet, other).blocks[-1], first) for other in others]
    assert same == [True, False, False]


def test_calls_together_give_what_they_give_alone(controlnet: Model) -> None:
    calls = [hinted(call()), hinted(call(items=2, sigma=0.2, seed=5))]
    for one, result in zip(calls, controlnet.execute_batch(calls), strict=True):
        together = result["residuals"]
        assert isinstance(together, CallResiduals)
        for ours, alone in zip(together.blocks, residuals(controlnet, one).blocks, strict=True):
            assert (ours - alone).abs().max() <= 1e-4 * alone.std()


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 5])
def test_taking_residuals_late_changes_no_bit(
    denoiser: Model,
    given_at_the_call: Callable[[dict[str, Any], tuple[torch.Tensor, ...]], torch.Tensor],
    num_blocks: int,
) -> None:
    one = call(items=2)
    blocks = tuple(noise(2, 16, SIZE.width, seed=10 + index) for index in range(num_blocks))
    late = denoised(denoiser, one, residuals=lambda: CallResiduals(blocks=blocks))
    assert torch.equal(late, given_at_the_call(one, blocks))
    assert not torch.equal(late, denoised(denoiser, one))


def test_residuals_are_asked_for_once_after_the_first_block(denoiser: Any) -> None:
    order: list[str] = []
    given = CallResiduals(blocks=(noise(1, 16, SIZE.width),))
    blocks = denoiser._module.transformer_blocks
    hooks = [
        block.register_forward_pre_hook(lambda *_, name=index: order.append(f"block {name}"))
        for index, block in enumerate(blocks)
    ]
    denoiser.execute(**call(), residuals=lambda: order.append("residuals") or given)
    for hook in hooks:
        hook.remove()
    assert order == ["block 0", "residuals", *(f"block {index}" for index in range(1, 5))]


def test_of_calls_that_share_a_forward_only_the_steered_one_changes(
    controlnet: Model, denoiser: Model
) -> None:
    steered, plain = call(), call(items=2, sigma=1.0, seed=5)
    given = residuals(controlnet, hinted(steered))
    first, second = denoiser.execute_batch([plain, {**steered, "residuals": lambda: given}])
    for result, alone in (
        (first, denoised(denoiser, plain)),
        (second, denoised(denoiser, steered, residuals=lambda: given)),
    ):
        tensor = result["denoised"]
        assert isinstance(tensor, torch.Tensor)
        assert (tensor - alone).abs().max() <= 1e-4 * alone.std()


def test_the_denoiser_works_on_after_residuals_that_never_came(denoiser: Model) -> None:
    one = call()
    before = denoised(denoiser, one)

    def never() -> CallResiduals:
        raise NodeFailed("lost")

    with pytest.raises(NodeFailed, match="lost"):
        denoiser.execute(**one, residuals=never)
    assert torch.equal(denoised(denoiser, one, residuals=lambda: None), before)


def test_what_does_not_fit_fails_the_node(controlnet: Model, denoiser: Model) -> None:
    other = CallResiduals(blocks=(noise(1, 16, 64),))
    with pytest.raises(NodeFailed, match="belongs to another model"):
        denoiser.execute(**call(), residuals=lambda: other)
    picture = {**call(), "hint": noise(1, 3, 64, 64)}
    with pytest.raises(NodeFailed, match=r"must be a latent \[1, 16, 8, 8\]"):
        controlnet.execute(**picture)
