"""The bodies of nodes with weights: they hand calls to the model and give values back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from kit.checkpoints import SD15_ROLES, load_model
from kit.op_calls import run_op
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.errors import Cancelled, NodeFailed
from nodeloom.runtime.models.tiny import write_tiny_sd15
from nodeloom.runtime.ops.registry import OPS, body
from nodeloom.runtime.values import Conditioning, Latent


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[Role, Model]:
    path: Path = tmp_path_factory.mktemp("models") / "tiny.safetensors"
    write_tiny_sd15(path)
    return {role: load_model(path, role) for role in SD15_ROLES}


def interrupt_after(count: int) -> Callable[[], None]:
    calls = iter(range(count))

    def check() -> None:
        if next(calls, None) is None:
            raise Cancelled("interrupted")

    return check


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_op_has_a_body(op: str) -> None:
    assert callable(body(op))


def test_no_two_ops_share_a_body() -> None:
    """Many bodies come out of one factory, so names can't tell them apart."""
    assert len({body(op) for op in OPS}) == len(OPS)


def test_an_unknown_op_fails_its_node() -> None:
    with pytest.raises(NodeFailed, match="knows no op 'launch'"):
        body("launch")


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_text_becomes_conditioning(models: dict[Role, Model], is_strict: bool) -> None:
    model = models[Role.TEXT_ENCODER]
    result = run_op("text_encode", {"text": "a (red:1.2) fox"}, model=model, is_strict=is_strict)
    (value,) = result.outputs
    assert isinstance(value, Conditioning)
    (entry,) = value.entries
    assert entry.cond.shape == (1, 77, 64)
    assert entry.pooled is not None
    assert entry.pooled.shape == (1, 64)


def test_latents_become_pictures_and_pictures_latents(models: dict[Role, Model]) -> None:
    vae = models[Role.VAE]
    samples = torch.randn(2, 4, 4, 5)
    (image,) = run_op("vae_decode", {"samples": Latent(samples=samples)}, model=vae).outputs
    assert isinstance(image, torch.Tensor)
    assert image.shape == (2, 32, 40, 3)
    (latent,) = run_op("vae_encode", {"pixels": image}, model=vae).outputs
    assert isinstance(latent, Latent)
    assert latent.samples.shape == samples.shape


def test_a_deferred_input_is_fetched(models: dict[Role, Model]) -> None:
    latent = Latent(samples=torch.randn(1, 4, 2, 2))
    given = run_op("vae_decode", {"samples": lambda: latent}, model=models[Role.VAE])
    (image,) = given.outputs
    assert isinstance(image, torch.Tensor)
    assert image.shape == (1, 16, 16, 3)


def test_decoding_can_be_interrupted_between_pictures(models: dict[Role, Model]) -> None:
    args = {"samples": Latent(samples=torch.randn(3, 4, 2, 2))}
    with pytest.raises(Cancelled):
        run_op("vae_decode", args, model=models[Role.VAE], check_cancelled=interrupt_after(2))


@pytest.mark.parametrize("op", ["text_encode", "vae_decode", "vae_encode"])
def test_a_node_without_its_model_or_inputs_fails(models: dict[Role, Model], op: str) -> None:
    with pytest.raises(NodeFailed, match="needs a model"):
        run_op(op, {"text": "a fox"})
    with pytest.raises(NodeFailed, match=r"input \w+ must be"):
        run_op(op, {}, model=models[Role.VAE])
