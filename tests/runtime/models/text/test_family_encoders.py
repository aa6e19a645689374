"""Text encoders of several files: loaded, counted, patched, joined; each family in its own way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from kit.tiny_text import T5Size, clip_g_spec, made, qwen3_spec, scaled, t5_spec
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import (
    T5_MIN_LENGTH,
    T5_MIN_PADDING,
    ModelKey,
    ModelRef,
    Patch,
    Role,
)
from nodeloom.graph_import.model import Model
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.executor.model_cache import ModelCache
from nodeloom.runtime.executor.patches import Patches
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.text.family_encoder import FamilyTextEncoder
from nodeloom.runtime.models.tiny import TextSize, text_spec
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.values import CondEntry, Conditioning
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]

L_WIDTH, G_WIDTH, T5_WIDTH, QWEN_WIDTH = 64, 128, 192, 128
JOINT = "text_encoders."
OWN = {
    "l": text_spec(TextSize(width=L_WIDTH, num_layers=3, inner=64)),
    "g": clip_g_spec(TextSize(width=G_WIDTH, num_layers=32, inner=64)),
    "t5": t5_spec(T5Size(width=T5_WIDTH, vocabulary=256)),
    "qwen": qwen3_spec(width=QWEN_WIDTH),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of one encoder each, and one of all of SD3's under a checkpoint's names."""
    folder = tmp_path_factory.mktemp("encoders")
    whole: Tensors = {}
    for name, spec in OWN.items():
        tensors = made(spec)
        save_file(tensors, folder / f"{name}.safetensors")
        encoder = {"l": "clip_l", "g": "clip_g", "t5": "t5xxl"}.get(name)
        if encoder is not None:
            whole |= {f"{JOINT}{encoder}.transformer.{key}": own for key, own in tensors.items()}
    save_file(whole, folder / "whole.safetensors")
    return folder


def ref(folder: Path, family: str, *names: str) -> ModelRef:
    files = [identify(folder / f"{name}.safetensors") for name in names]
    key = ModelKey(
        role=Role.TEXT_ENCODER,
        family=family,
        file=files[0],
        dtype="float16",
        more_files=tuple(files[1:]),
    )
    return ModelRef(key=key)


def loaded(folder: Path, family: str, *names: str) -> Model:
    model = build(ref(folder, family, *names))
    model.load("cpu")
    return model


def encode(model: Model, text: str = "a (red:1.3) cube", **more: object) -> CondEntry:
    given = model.execute(text=text, **more)["conditioning"]
    assert isinstance(given, Conditioning)
    (entry,) = given.entries
    return entry


def pooled(entry: CondEntry) -> torch.Tensor:
    assert entry.pooled is not None
    return entry.pooled


def test_sd3_puts_its_encoders_side_by_side_and_one_after_the_other(folder: Path) -> None:
    entry = encode(loaded(folder, "sd3", "l", "g", "t5"))
    assert entry.cond.shape == (1, 77 + 77, 4096)
    clip, t5 = entry.cond[0, :77], entry.cond[0, 77:]
    assert not clip[:, L_WIDTH + G_WIDTH :].any()
    assert clip[:, : L_WIDTH + G_WIDTH].abs().min(dim=0).values.any()
    assert t5[:, :T5_WIDTH].any()
    assert not t5[:, T5_WIDTH:].any()
    assert pooled(entry).shape == (1, L_WIDTH + G_WIDTH)


@pytest.mark.parametrize(
    ("names", "tokens", "filled", "pooled_width"),
    [
        (("l",), 77, slice(0, L_WIDTH), L_WIDTH + 1280),
        (("g",), 77, slice(768, 768 + G_WIDTH), 768 + G_WIDTH),
        (("t5",), 77, slice(0, T5_WIDTH), 768 + 1280),
    ],
)
def test_zeros_stand_for_the_encoders_that_sd3_lacks(
    folder: Path, names: tuple[str, ...], tokens: int, filled: slice, pooled_width: int
) -> None:
    entry = encode(loaded(folder, "sd3", *names))
    rest = entry.cond.clone()
    rest[..., filled] = 0.0
    assert entry.cond.shape == (1, tokens, 4096)
    assert entry.cond[..., filled].any()
    assert not rest.any()
    assert pooled(entry).shape == (1, pooled_width)


def test_one_file_of_all_encoders_is_as_good_as_three(folder: Path) -> None:
    apart, together = loaded(folder, "sd3", "l", "g", "t5"), loaded(folder, "sd3", "whole")
    assert torch.equal(encode(apart).cond, encode(together).cond)
    assert apart.num_bytes == together.num_bytes


def test_each_of_sd3s_encoders_may_have_a_text_of_its_own(folder: Path) -> None:
    model = loaded(folder, "sd3", "l", "g", "t5")
    texts = {"clip_l": "a cat", "t5xxl": "a bird"}
    entry = encode(model, "word " * 100, texts=texts)
    assert entry.cond.shape == (1, 2 * 77 + 77, 4096)
    # CLIP-L's second chunk is the empty text, so that both have two.
    empty = encode(model, "")
    assert torch.allclose(entry.cond[0, 77:154, :L_WIDTH], empty.cond[0, :77, :L_WIDTH], atol=1e-5)
    birds = encode(model, "a bird").cond
    assert torch.allclose(entry.cond[0, 154:], birds[0, 77:], atol=1e-5)


def test_texts_that_are_left_out_leave_t5_its_end(folder: Path) -> None:
    model = loaded(folder, "sd3", "l", "g", "t5")
    entry = encode(model, "", texts={"clip_l": "", "t5xxl": ""}, is_empty_left_out=True)
    assert entry.cond.shape == (1, 1, 4096)
    assert not pooled(entry).any()
    without_t5 = loaded(folder, "sd3", "l", "g")
    entry = encode(without_t5, "", texts={"clip_l": ""}, is_empty_left_out=True)
    assert entry.cond.shape == (1, 77, 4096)
    assert not entry.cond.any()


def test_sdxl_takes_clip_g_alone_for_its_refiner(folder: Path) -> None:
    both, refiner = loaded(folder, "sdxl", "l", "g"), loaded(folder, "sdxl", "g")
    first, second = encode(both), encode(refiner)
    assert torch.equal(first.cond[..., L_WIDTH:], second.cond)
    assert torch.equal(pooled(first), pooled(second))
    with pytest.raises(NodeFailed, match="no clip_g"):
        encode(loaded(folder, "sdxl", "l"))


def test_flux_takes_t5s_vectors_and_clip_ls_pooled_one(folder: Path) -> None:
    entry = encode(loaded(folder, "flux", "l", "t5"), "a cube")
    assert entry.cond.shape == (1, 256, T5_WIDTH)
    assert torch.equal(pooled(entry), pooled(encode(loaded(folder, "sd15", "l"), "a cube")))
    with pytest.raises(NodeFailed, match="no t5xxl"):
        encode(loaded(folder, "flux", "l"))


def test_z_image_takes_qwens_vectors_alone(folder: Path) -> None:
    model = loaded(folder, "z_image", "qwen")
    entry = encode(model, "a cube")
    assert (entry.cond.shape[2], entry.pooled) == (QWEN_WIDTH, None)
    assert torch.equal(encode(model, "a (cube:1.5)").cond[0, 0], entry.cond[0, 0])


def test_how_far_t5_is_filled_up_may_be_chosen(folder: Path) -> None:
    model = loaded(folder, "sd3", "t5")
    model.ref = model.ref.with_option(T5_MIN_PADDING, 3).with_option(T5_MIN_LENGTH, 0)
    assert encode(model, "").cond.shape == (1, 1 + 3, 4096)


def test_a_long_text_with_weights_is_weighed_against_as_long_an_empty_one(folder: Path) -> None:
    model = loaded(folder, "sd3", "t5")
    plain, weighed = encode(model, "cube " * 100), encode(model, f"({'cube ' * 100}:1.5)")
    assert plain.cond.shape == weighed.cond.shape
    assert plain.cond.shape[1] > 77
    assert not torch.equal(plain.cond, weighed.cond)


def test_scaled_weights_count_as_what_they_stand_for(folder: Path, tmp_path: Path) -> None:
    tensors = dict(scaled(made(OWN["t5"])))
    save_file(tensors, tmp_path / "scaled.safetensors")
    plain: Tensors = {}
    for name, tensor in tensors.items():
        scale = tensors.get(name.removesuffix("weight") + "scale_weight")
        if not name.endswith(("scale_weight", "scaled_fp8")):
            plain[name] = tensor.float() if scale is None else tensor.float() * scale
    save_file(plain, tmp_path / "plain.safetensors")
    ours, theirs = loaded(tmp_path, "sd3", "scaled"), loaded(tmp_path, "sd3", "plain")
    assert torch.equal(encode(ours).cond, encode(theirs).cond)
    assert ours.num_bytes < 0.6 * theirs.num_bytes


def test_a_patched_weight_of_8_bits_is_held_in_16(tmp_path: Path) -> None:
    name = "encoder.block.0.layer.1.DenseReluDense.wo"
    save_file(dict(scaled(made(OWN["t5"]))), tmp_path / "t5.safetensors")
    delta = torch.randn(T5_WIDTH, 256, generator=torch.Generator().manual_seed(1)) * 0.1
    save_file({f"lora_te3_{name.replace('.', '_')}.diff": delta}, tmp_path / "lora.safetensors")
    model = loaded(tmp_path, "sd3", "t5")
    assert isinstance(model, FamilyTextEncoder)
    target, own = model.patch_target(), f"t5xxl.{name.removeprefix('encoder.')}.weight"
    weight = dict(target.module.named_parameters())[own]
    before, held, first = target.widened(own, weight.data), weight.data, encode(model).cond
    patches, asked = Patches(model.ref.key, model), []
    lora = Patch(file=identify(tmp_path / "lora.safetensors"), strength=0.5)
    patches.put_on((lora,), asked.append, lambda: None)
    assert torch.equal(weight.data, (before + 0.5 * delta).half())
    assert asked == [patches.num_bytes] == [weight.numel() * 2]
    assert not torch.equal(encode(model).cond, first)
    patches.take_off()
    assert weight.data.data_ptr() == held.data_ptr()
    assert torch.equal(encode(model).cond, first)


@pytest.mark.parametrize("change", ["shape", "bits"])
def test_weights_scaled_in_another_way_are_refused(tmp_path: Path, change: str) -> None:
    tensors = dict(scaled(made(OWN["t5"])))
    name = "encoder.block.0.layer.1.DenseReluDense.wo."
    if change == "shape":
        tensors[f"{name}scale_weight"] = torch.ones(T5_WIDTH)
    else:
        tensors[f"{name}weight"] = tensors[f"{name}weight"].half()
    save_file(tensors, tmp_path / "t5.safetensors")
    with pytest.raises(ModelFileProblem, match=r"wo\.weight is scaled in a way"):
        loaded(tmp_path, "sd3", "t5")


def test_open_clips_names_are_the_same_encoder(folder: Path, tmp_path: Path) -> None:
    save_file(as_open_clip(made(OWN["g"])), tmp_path / "g.safetensors")
    ours, theirs = loaded(folder, "sdxl", "g"), loaded(tmp_path, "sdxl", "g")
    assert torch.equal(encode(ours).cond, encode(theirs).cond)
    assert torch.equal(pooled(encode(ours)), pooled(encode(theirs)))


def as_open_clip(tensors: Tensors) -> Tensors:
    """CLIP-G under the names that SDXL's checkpoints have."""
    renamed: Tensors = {"logit_scale": torch.tensor(4.6)}
    attention: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        path = name.removeprefix("text_model.")
        for ours, theirs in (
            ("encoder.layers.", "transformer.resblocks."),
            ("layer_norm", "ln_"),
            ("mlp.fc1", "mlp.c_fc"),
            ("mlp.fc2", "mlp.c_proj"),
            ("self_attn.out_proj", "attn.out_proj"),
            ("embeddings.token_embedding.weight", "token_embedding.weight"),
            ("embeddings.position_embedding.weight", "positional_embedding"),
            ("final_ln_", "ln_final"),
        ):
            path = path.replace(ours, theirs)
        if path == "text_projection.weight":
            renamed["text_projection"] = tensor.t().contiguous()
        elif ".self_attn." in path:
            base, _, leaf = path.partition(".self_attn.")
            matrix, _, kind = leaf.partition("_proj.")
            attention.setdefault(f"{base}.attn.in_proj_{kind}", {})[matrix] = tensor
        else:
            renamed[path] = tensor
    joined = {name: torch.cat([parts[m] for m in "qkv"]) for name, parts in attention.items()}
    return renamed | joined


@pytest.mark.parametrize(
    ("family", "names", "stem"),
    [
        ("sdxl", ("l", "g"), "lora_te1_text_model_encoder_layers_0_mlp_fc1"),
        ("sdxl", ("l", "g"), "lora_te2_text_model_encoder_layers_0_mlp_fc1"),
        ("sdxl", ("l", "g"), "lora_te2_text_projection"),
        ("sd3", ("l", "t5"), "lora_te3_encoder_block_0_layer_1_DenseReluDense_wo"),
        (
            "sd3",
            ("l", "t5"),
            "text_encoders.t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.q",
        ),
        ("flux", ("l", "t5"), "lora_te2_encoder_block_0_layer_1_DenseReluDense_wo"),
        ("z_image", ("qwen",), "text_encoders.qwen3_4b.transformer.model.layers.0.mlp.down_proj"),
    ],
)
def test_a_patch_finds_its_encoder_and_comes_off_bit_for_bit(
    folder: Path, tmp_path: Path, family: str, names: tuple[str, ...], stem: str
) -> None:
    model = loaded(folder, family, *names)
    assert isinstance(model, FamilyTextEncoder)
    before = encode(model)
    weights = dict(model.patch_target().module.named_parameters())
    size = {
        "fc1": (64, G_WIDTH if "te2" in stem else L_WIDTH),
        "projection": (G_WIDTH, G_WIDTH),
        "wo": (T5_WIDTH, 256),
        "q": (128, T5_WIDTH),
        "proj": (QWEN_WIDTH, 2 * QWEN_WIDTH),
    }[stem.rpartition("_")[2].rpartition(".")[2]]
    path = tmp_path / "lora.safetensors"
    save_file(
        {
            f"{stem}.lora_up.weight": torch.full((size[0], 2), 0.3),
            f"{stem}.lora_down.weight": torch.full((2, size[1]), 0.3),
        },
        path,
    )
    patches = Patches(model.ref.key, model)
    patches.put_on((Patch(file=identify(path), strength=1.0),), lambda _: None, lambda: None)
    (report,) = patches.coverage
    assert (report.num_applied, report.num_ignored) == (2, 0)
    after = encode(model)
    assert not (
        torch.equal(after.cond, before.cond) and torch.equal(*map(_or_zero, (after, before)))
    )
    patches.take_off()
    assert torch.equal(encode(model).cond, before.cond)
    assert all(weights[name] is one for name, one in model.patch_target().module.named_parameters())


def _or_zero(entry: CondEntry) -> torch.Tensor:
    return torch.zeros(1) if entry.pooled is None else entry.pooled


def test_a_file_without_an_encoder_of_the_family_is_refused(folder: Path) -> None:
    with pytest.raises(
        ModelFileProblem, match=r"t5\.safetensors: it holds no text encoder of sd15"
    ):
        loaded(folder, "sd15", "l", "t5")


def test_every_file_is_watched_and_counted(folder: Path, tmp_path: Path) -> None:
    for name in ("l", "t5"):
        save_file(made(OWN[name]), tmp_path / f"{name}.safetensors")
    both = ref(tmp_path, "flux", "l", "t5")
    cache = ModelCache(2**30, "cpu", build)
    estimate = build(both).num_bytes
    assert cache.get(both, lambda: None).num_bytes == pytest.approx(estimate, rel=0.01)
    assert both.key.size_bytes == sum(file.size_bytes for file in both.key.files)
    cache.drop_all()
    os.utime(tmp_path / "t5.safetensors", ns=(1, 1))
    with pytest.raises(ModelFileProblem, match=r"t5\.safetensors: the file was changed"):
        cache.get(both, lambda: None)
    assert cache.resident() == ()


@pytest.mark.parametrize(("family", "name"), [("sd3", "t5"), ("z_image", "qwen")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_a_large_encoder_is_held_as_its_file_has_it_and_computes_in_float32(
    tmp_path: Path, family: str, name: str, dtype: torch.dtype
) -> None:
    narrow = {key: tensor.to(dtype) for key, tensor in made(OWN[name]).items()}
    save_file(narrow, tmp_path / "narrow.safetensors")
    save_file(
        {key: tensor.float() for key, tensor in narrow.items()}, tmp_path / "wide.safetensors"
    )
    held, wide = loaded(tmp_path, family, "narrow"), loaded(tmp_path, family, "wide")
    assert isinstance(held, FamilyTextEncoder)
    assert held.num_bytes < 0.6 * wide.num_bytes
    assert build(held.ref).num_bytes == pytest.approx(held.num_bytes, rel=0.01)
    assert torch.equal(encode(held).cond, encode(wide).cond)
    weights = held.patch_target().module.parameters()
    assert {weight.dtype for weight in weights} == {dtype}
