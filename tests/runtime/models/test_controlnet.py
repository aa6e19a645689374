"""SD1.5's ControlNets give ComfyUI's numbers; the denoiser takes them late, to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from kit.checkpoints import load_model
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.models.headers import inspect_part
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.sd15 import hint_embedding
from nodeloom.runtime.models.sd15.hint_embedding import HintEmbedding
from nodeloom.runtime.models.tiny import SLOW, write_tiny_sd15
from nodeloom.runtime.models.tiny_controlnet import controlnet_spec, write_tiny_controlnet
from nodeloom.runtime.models.weight_spec import materialise
from nodeloom.runtime.values import CallResiduals
from safetensors.torch import load_file, save_file

GOLDEN = Path(__file__).parents[2] / "goldens" / "models" / "controlnet_sd15.safetensors"
SAMPLING = family("sd15").model_sampling


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_tiny_sd15(folder / "sd15.safetensors")
    write_tiny_controlnet(folder / "control.safetensors")
    return folder


def load_controlnet(path: Path) -> Model:
    info = inspect_part(path)
    assert info.roles == {Role.CONTROLNET}
    key = ModelKey(role=Role.CONTROLNET, family=info.family, file=info.file, dtype="float32")
    model = build(ModelRef(key=key))
    model.load("cpu")
    return model


@pytest.fixture(scope="module")
def controlnet(folder: Path) -> Model:
    return load_controlnet(folder / "control.safetensors")


@pytest.fixture(scope="module")
def denoiser(folder: Path) -> Model:
    return load_model(folder / "sd15.safetensors", Role.DENOISER)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def call(x: torch.Tensor, sigma: float = 3.0, seed: int = 1) -> dict[str, object]:
    return {"x": x, "sigma": sigma, "context": noise(1, 77, 64, seed=seed)}


def with_hint(of: dict[str, object], seed: int = 2) -> dict[str, object]:
    x = of["x"]
    assert isinstance(x, torch.Tensor)
    height, width = (8 * side for side in x.shape[-2:])
    return {**of, "hint": noise(len(x), 3, height, width, seed=seed).sigmoid()}


def residuals(model: Model, of: dict[str, object]) -> CallResiduals:
    given = model.execute(**of)["residuals"]
    assert isinstance(given, CallResiduals)
    return given


def denoised(model: Model, **of: object) -> torch.Tensor:
    given = model.execute(**of)["denoised"]
    assert isinstance(given, torch.Tensor)
    return given


def tensors(of: CallResiduals) -> list[torch.Tensor]:
    return list(of.blocks)


def assert_close(tensor: torch.Tensor, reference: torch.Tensor, limit: float = 1e-4) -> None:
    assert tensor.shape == reference.shape
    assert (tensor - reference).abs().max() <= limit * reference.std()


def test_it_gives_the_recorded_residuals(controlnet: Model) -> None:
    golden = load_file(GOLDEN)
    sigma = SAMPLING.sigmas[int(golden["t"])]
    given = controlnet.execute(
        x=golden["x"] / SAMPLING.input_scale(sigma),
        sigma=sigma,
        context=golden["context"],
        hint=golden["hint"],
    )["residuals"]
    assert isinstance(given, CallResiduals)
    *down, middle = given.blocks
    assert len(down) == 4
    for index, tensor in enumerate(down):
        assert_close(tensor, golden[f"down.{index}"])
    assert_close(middle, golden["out"])


def test_a_file_under_its_own_names_gives_the_same(controlnet: Any, tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    own = controlnet._module.state_dict()
    embedding = controlnet._hints._embed.state_dict()
    own |= {f"controlnet_cond_embedding.{name}": tensor for name, tensor in embedding.items()}
    save_file({name: tensor.contiguous() for name, tensor in own.items()}, path)
    one = with_hint(call(noise(1, 4, 8, 16)))
    same = residuals(load_controlnet(path), one)
    assert all(map(torch.equal, tensors(same), tensors(residuals(controlnet, one))))


def test_calls_of_any_shape_give_what_they_give_alone(controlnet: Model) -> None:
    calls = [
        with_hint(call(noise(1, 4, 8, 8), 9.0)),
        with_hint(call(noise(2, 4, 8, 8), 0.3)),
        with_hint(call(noise(1, 4, 6, 10), 2.0)),
    ]
    for one, result in zip(calls, controlnet.execute_batch(calls), strict=True):
        together = result["residuals"]
        assert isinstance(together, CallResiduals)
        for tensor, alone in zip(
            tensors(together), tensors(residuals(controlnet, one)), strict=True
        ):
            assert_close(tensor, alone)


def test_a_hint_is_looked_at_once_and_again_when_it_is_another(folder: Path) -> None:
    model: Any = load_controlnet(folder / "control.safetensors")
    looks: list[int] = []
    hook = model._hints._embed.register_forward_hook(lambda *_: looks.append(1))
    one, other = (with_hint(call(noise(1, 4, 8, 8)), seed=seed) for seed in (2, 3))
    first, again = (residuals(model, one) for _ in range(2))
    assert all(map(torch.equal, tensors(first), tensors(again)))
    assert len(looks) == 1
    model.execute_batch([one, other, {**one, "context": noise(1, 77, 64, seed=9)}])
    assert len(looks) == 2
    assert not torch.equal(residuals(model, other).blocks[-1], first.blocks[-1])
    assert len(looks) == 2
    hook.remove()


def test_hints_are_remembered_within_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def embed(hint: torch.Tensor) -> torch.Tensor:
        looks.append(hint.mean().item())
        return hint * 2

    monkeypatch.setattr(hint_embedding, "MAX_BYTES", 2 * 2 * 400)
    hints = HintEmbedding(embed)
    a, b, c = (torch.full((100,), float(value)) for value in (1, 2, 3))
    for hint in (a, b, a, c, a, b):
        assert torch.equal(hints.of(hint), hint * 2)
        assert hints.num_bytes <= 2 * 2 * 400
    assert looks == [1.0, 2.0, 3.0, 2.0]  # b, used longest ago, made room for c


def test_taking_residuals_late_changes_no_bit(controlnet: Model, denoiser: Any) -> None:
    one = call(noise(2, 4, 8, 8))
    given = residuals(controlnet, with_hint(one))
    late = denoised(denoiser, **one, residuals=lambda: given)
    module = denoiser._module
    plain_forward = module.forward

    def forward_with_all(*args: Any, **more: Any) -> Any:
        return plain_forward(
            *args,
            down_block_additional_residuals=given.blocks[:-1],
            mid_block_additional_residual=given.blocks[-1],
            **more,
        )

    module.forward = forward_with_all
    try:
        direct = denoised(denoiser, **one)
    finally:
        module.forward = plain_forward
    assert torch.equal(late, direct)
    assert not torch.equal(late, denoised(denoiser, **one))


def test_residuals_are_asked_for_after_the_middle_block(controlnet: Model, denoiser: Any) -> None:
    one = call(noise(1, 4, 8, 8))
    given = residuals(controlnet, with_hint(one))
    order: list[str] = []
    module = denoiser._module
    blocks = {"down": module.down_blocks[-1], "mid": module.mid_block.resnets[-1]}
    blocks |= {"up": module.up_blocks[0]}
    hooks = [
        block.register_forward_pre_hook(lambda *_, name=name: order.append(name))
        for name, block in blocks.items()
    ]
    denoiser.execute(**one, residuals=lambda: order.append("residuals") or given)
    for hook in hooks:
        hook.remove()
    assert order == ["down", "mid", "residuals", "up"]


def test_of_calls_that_share_a_forward_only_the_steered_one_changes(
    controlnet: Model, denoiser: Model
) -> None:
    steered, plain = call(noise(1, 4, 8, 8)), call(noise(2, 4, 8, 8, seed=5), 1.0)
    given = residuals(controlnet, with_hint(steered))
    first, second = denoiser.execute_batch([plain, {**steered, "residuals": lambda: given}])
    assert isinstance(first["denoised"], torch.Tensor)
    assert isinstance(second["denoised"], torch.Tensor)
    assert_close(first["denoised"], denoised(denoiser, **plain))
    assert_close(second["denoised"], denoised(denoiser, **steered, residuals=lambda: given))


def test_a_call_whose_controlnet_adds_nothing_is_as_it_would_be_without(denoiser: Model) -> None:
    one = call(noise(1, 4, 8, 8))
    assert torch.equal(denoised(denoiser, **one, residuals=lambda: None), denoised(denoiser, **one))


def test_the_denoiser_works_on_after_residuals_that_never_came(denoiser: Model) -> None:
    one = call(noise(1, 4, 8, 8))
    before = denoised(denoiser, **one)

    def never() -> CallResiduals:
        raise NodeFailed("lost")

    with pytest.raises(NodeFailed, match="lost"):
        denoiser.execute(**one, residuals=never)
    assert torch.equal(denoised(denoiser, **one), before)


def test_a_controlnet_for_another_denoiser_fails_the_node(denoiser: Model, tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    write_tiny_controlnet(path, size=SLOW.unet)
    one = call(noise(1, 4, 8, 8))
    given = residuals(load_controlnet(path), with_hint(one))
    with pytest.raises(NodeFailed, match="another family"):
        denoiser.execute(**one, residuals=lambda: given)


def test_a_hint_of_another_size_fails_the_node(controlnet: Model) -> None:
    with pytest.raises(NodeFailed, match=r"must be \[1, 3, 64, 64\] here, not \[1, 3, 32, 64\]"):
        controlnet.execute(**call(noise(1, 4, 8, 8)), hint=torch.zeros(1, 3, 32, 64))


@pytest.mark.parametrize(
    ("name", "reason"),
    [("difference", "difference"), ("lora_controlnet", "Control-LoRA")],
)
def test_other_kinds_are_refused_by_name(tmp_path: Path, name: str, reason: str) -> None:
    made = materialise(controlnet_spec(SLOW.unet), seed=0)
    path = tmp_path / "other.safetensors"
    save_file({k: torch.from_numpy(v) for k, v in made.items()} | {name: torch.zeros(1)}, path)
    with pytest.raises(ModelFileProblem, match=reason):
        inspect_part(path)
