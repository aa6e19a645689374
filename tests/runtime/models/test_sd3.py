"""SD3's transformer: what a file is, what shares a forward pass, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kit.checkpoints import SD15_ROLES, load_model
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import Patch, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.errors import NodeFailed, PatchMatchesNothing
from nodeloom.runtime.executor.patches import Patches
from nodeloom.runtime.models.headers import (
    DENOISER_PREFIX,
    VAE_PREFIX,
    inspect_checkpoint,
    inspect_part,
)
from nodeloom.runtime.models.text.places import JOINT_TEXT_PREFIX
from nodeloom.runtime.models.tiny import TINY, TextSize, vae_spec, write_spec
from nodeloom.runtime.models.tiny_sd3 import (
    MmditSize,
    Sd3Size,
    mmdit_spec,
    write_tiny_sd3,
    write_tiny_sd3_controlnet,
)
from nodeloom.runtime.models.weight_files import identify
from safetensors.numpy import load_file, save_file

WIDTH, POOLED = 32, 24
SIZE = Sd3Size(
    mmdit=MmditSize(num_blocks=2, context=WIDTH, pooled=POOLED, positions=16),
    vae=TINY.vae,
    text=TextSize(width=64, num_layers=1, inner=64),
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "sd3.safetensors"
    write_tiny_sd3(path, size=SIZE)
    return path


@pytest.fixture(scope="module")
def denoiser(checkpoint: Path) -> Model:
    return load_model(checkpoint, Role.DENOISER)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def call(
    height: int = 8, width: int = 8, *, items: int = 1, tokens: int = 77, sigma: float = 0.6
) -> dict[str, Any]:
    return {
        "x": noise(items, 16, height, width),
        "sigma": sigma,
        "context": noise(1, tokens, WIDTH, seed=1),
        "pooled": noise(1, POOLED, seed=2),
    }


def denoised(model: Model, one: dict[str, Any]) -> torch.Tensor:
    tensor = model.execute(**one)["denoised"]
    assert isinstance(tensor, torch.Tensor)
    return tensor


def without(path: Path, prefix: str) -> Path:
    """The checkpoint without what starts with `prefix`."""
    kept = {n: t for n, t in load_file(path).items() if not n.startswith(prefix)}
    other = path.with_name("less.safetensors")
    save_file(kept, other)
    return other


def test_a_checkpoint_is_known_by_its_joint_blocks(checkpoint: Path) -> None:
    info = inspect_checkpoint(checkpoint)
    assert (info.family, info.dtype, info.roles) == ("sd3", "float16", frozenset(SD15_ROLES))


@pytest.mark.parametrize(
    ("prefix", "role"), [(VAE_PREFIX, Role.VAE), (JOINT_TEXT_PREFIX, Role.TEXT_ENCODER)]
)
def test_a_checkpoint_without_a_part_lacks_its_role(
    checkpoint: Path, prefix: str, role: Role
) -> None:
    info = inspect_checkpoint(without(checkpoint, prefix))
    assert info.roles == frozenset(SD15_ROLES) - {role}


def test_parts_are_known_with_and_without_a_prefix(checkpoint: Path, tmp_path: Path) -> None:
    found: list[tuple[str, Role]] = []
    for prefix in ("", DENOISER_PREFIX):
        path = tmp_path / f"denoiser{len(prefix)}.safetensors"
        spec = mmdit_spec(SIZE.mmdit)
        write_spec(path, type(spec)({prefix + n: entry for n, entry in spec.items()}), 0)
        info = inspect_part(path)
        found += [(info.family, role) for role in info.roles]
    vae, controlnet = tmp_path / "vae.safetensors", tmp_path / "controlnet.safetensors"
    write_spec(vae, vae_spec(TINY.vae, latent_channels=16, has_quant_convs=False), 0)
    write_tiny_sd3_controlnet(controlnet, size=SIZE.mmdit)
    found += [("sd3", role) for path in (vae, controlnet) for role in inspect_part(path).roles]
    roles = (Role.DENOISER, Role.DENOISER, Role.VAE, Role.CONTROLNET)
    assert found == [("sd3", role) for role in roles]


def test_a_controlnet_whose_blocks_see_no_text_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "stability.safetensors"
    save_file({"pos_embed_input.proj.weight": np.zeros((64, 16, 2, 2), np.float16)}, path)
    with pytest.raises(ModelFileProblem, match="no known kind"):
        inspect_part(path)


def test_calls_of_any_shape_give_what_they_give_alone(denoiser: Model) -> None:
    calls = [
        call(sigma=1.0),
        call(items=2, sigma=0.1),  # shares the first one's forward, at another step
        call(tokens=154),
        call(6, 10),
        call(7, 9),
    ]
    together = denoiser.execute_batch(calls)
    for one, result in zip(calls, together, strict=True):
        tensor, alone = result["denoised"], denoised(denoiser, one)
        assert isinstance(tensor, torch.Tensor)
        assert tensor.shape == one["x"].shape
        assert (tensor - alone).abs().max() <= 1e-4 * alone.std()


def test_only_calls_of_one_size_and_number_of_tokens_share_a_forward(denoiser: Any) -> None:
    rows: list[int] = []
    hook = denoiser._module.register_forward_pre_hook(
        lambda _module, _args, given: rows.append(len(given["hidden_states"])), with_kwargs=True
    )
    denoiser.execute_batch([call(), call(tokens=154), call(items=2), call(6, 10)])
    hook.remove()
    assert rows == [3, 1, 1]


def test_the_pooled_vector_has_a_say(denoiser: Model) -> None:
    one = call()
    other = {**one, "pooled": noise(1, POOLED, seed=9)}
    assert not torch.equal(denoised(denoiser, one), denoised(denoiser, other))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pooled": None}, "no pooled vector"),
        ({"pooled": noise(1, 768)}, f"takes {POOLED}: it comes from a text encoder of another"),
        ({"context": noise(1, 77, 768)}, "another family"),
        ({"context": noise(2, 77, WIDTH)}, "for 2 pictures, the latents for 1"),
        ({"x": noise(1, 4, 8, 8)}, "this model takes 16 channels"),
        ({"x": noise(1, 16, 8, 34)}, "knows 32 positions a side"),
    ],
)
def test_inputs_that_do_not_fit_fail_the_node(
    denoiser: Model, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(NodeFailed, match=message):
        denoiser.execute(**{**call(), **more})


def test_a_weight_too_few_is_named(checkpoint: Path) -> None:
    lacking = without(checkpoint, DENOISER_PREFIX + "joint_blocks.1.x_block.mlp.fc2.bias")
    with pytest.raises(ModelFileProblem, match=r"transformer_blocks\.1\.ff\.net\.2\.bias"):
        load_model(lacking, Role.DENOISER)


def test_a_fused_weight_that_can_not_be_split_is_named(checkpoint: Path, tmp_path: Path) -> None:
    name = DENOISER_PREFIX + "joint_blocks.1.x_block.attn.qkv.weight"
    tensors = load_file(checkpoint)
    save_file(tensors | {name: tensors[name][:-1]}, tmp_path / "cut.safetensors")
    with pytest.raises(ModelFileProblem, match=r"joint_blocks\.1\.x_block\.attn\.qkv\.weight"):
        load_model(tmp_path / "cut.safetensors", Role.DENOISER)


def test_patches_find_modules_by_diffusers_names(denoiser: Any) -> None:
    modules = denoiser.patch_target().modules
    block = "transformer_blocks.0.attn"
    assert {modules[f"{block}.to_out".replace(".", "_")]} == {f"{block}.to_out.0"}


def test_a_lora_under_diffusers_names_goes_on_and_off_again(
    checkpoint: Path, tmp_path: Path
) -> None:
    path, rows = tmp_path / "lora.safetensors", np.ones((4, SIZE.mmdit.width), np.float32)
    stem = "transformer.transformer_blocks.0.attn.to_q"
    save_file({f"{stem}.lora_A.weight": rows, f"{stem}.lora_B.weight": rows.T.copy()}, path)
    model, one = load_model(checkpoint, Role.DENOISER), call()
    before = denoised(model, one)
    patches = Patches(model.ref.key, model)
    patches.put_on((Patch(file=identify(path), strength=0.5),), lambda _: None, lambda: None)
    changed = denoised(model, one)
    patches.take_off()
    assert not torch.equal(changed, before)
    assert torch.equal(denoised(model, one), before)


@pytest.mark.parametrize("prefix", ["lora_unet_", "diffusion_model."])
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_a_lora_under_the_original_names_changes_what_it_would_change_in_the_file(
    checkpoint: Path, tmp_path: Path, prefix: str, kind: str
) -> None:
    """Their matrices of queries, keys and values are one; here the rows are three modules'."""
    tensors, lora = load_file(checkpoint), {}
    for number, stem in enumerate(
        (
            "joint_blocks.0.x_block.attn.qkv",
            "joint_blocks.1.context_block.attn.qkv",
            "joint_blocks.0.context_block.mlp.fc1",
            "joint_blocks.0.x_block.adaLN_modulation.1",
            "context_embedder",
        )
    ):
        name = f"{DENOISER_PREFIX}{stem}.weight"
        weight, random = tensors[name].astype(np.float32), np.random.default_rng(number)
        up = random.normal(size=(len(weight), 2)).astype(np.float32)
        down = random.normal(size=(2, weight.shape[1])).astype(np.float32) * 0.1
        own = f"{prefix}{stem.replace('.', '_') if prefix.endswith('_') else stem}"
        lora |= {f"{own}.lora_up.weight": up, f"{own}.lora_down.weight": down}
        changed = weight + up @ down
        if kind == "dora":
            scale = random.uniform(0.5, 1.5, size=(len(weight), 1)).astype(np.float32)
            lora[f"{own}.dora_scale"] = scale
            changed = changed * scale / np.linalg.norm(weight, axis=1, keepdims=True)
        tensors[name] = weight + 0.5 * (changed - weight)
    save_file(lora, tmp_path / "lora.safetensors")
    save_file(tensors, tmp_path / "changed.safetensors")
    model, one = load_model(checkpoint, Role.DENOISER), call()
    patches = Patches(model.ref.key, model)
    patch = Patch(file=identify(tmp_path / "lora.safetensors"), strength=0.5)
    patches.put_on((patch,), lambda _: None, lambda: None)
    (report,) = patches.coverage
    assert (report.num_applied, report.num_ignored, report.num_misshapen) == (len(lora), 0, 0)
    expected = denoised(load_model(tmp_path / "changed.safetensors", Role.DENOISER), one)
    assert torch.allclose(denoised(model, one), expected, atol=1e-4)
    assert not torch.allclose(
        denoised(load_model(checkpoint, Role.DENOISER), one), expected, atol=1e-2
    )


def test_norms_of_columns_do_not_fit_a_third_of_a_matrix(checkpoint: Path, tmp_path: Path) -> None:
    path, stem = tmp_path / "lora.safetensors", "diffusion_model.joint_blocks.0.x_block.attn.qkv"
    width = SIZE.mmdit.width
    rows, scale = np.ones((3 * width, 1), np.float32), np.ones((1, width), np.float32)
    save_file({f"{stem}.lora_up.weight": rows, f"{stem}.lora_down.weight": scale}, path)
    model = load_model(checkpoint, Role.DENOISER)
    patch = Patch(file=identify(path), strength=1.0)
    Patches(model.ref.key, model).put_on((patch,), lambda _: None, lambda: None)
    given = load_file(path) | {f"{stem}.dora_scale": scale}
    save_file(given, path)
    patch = Patch(file=identify(path), strength=1.0)
    with pytest.raises(PatchMatchesNothing, match="have another shape"):
        Patches(model.ref.key, model).put_on((patch,), lambda _: None, lambda: None)
