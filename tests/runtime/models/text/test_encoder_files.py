"""Text encoders of one file or several: loaded, watched, counted, under any of their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from kit.encoder_files import (
    OWN,
    QWEN_WIDTH,
    T5_WIDTH,
    Tensors,
    as_open_clip,
    encode,
    loaded,
    pooled,
    ref,
)
from kit.tiny_text import made, scaled
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.runtime.executor.model_cache import ModelCache
from nodeloom.runtime.models.registry import build
from safetensors.torch import save_file


def test_one_file_of_all_encoders_is_as_good_as_three(folder: Path) -> None:
    apart, together = loaded(folder, "sd3", "l", "g", "t5"), loaded(folder, "sd3", "whole")
    assert torch.equal(encode(apart).cond, encode(together).cond)
    assert apart.num_bytes == together.num_bytes


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


def test_a_projection_under_open_clips_name_is_the_same(folder: Path, tmp_path: Path) -> None:
    tensors = made(OWN["g"])
    tensors["text_projection"] = tensors.pop("text_projection.weight").t().contiguous()
    save_file(tensors, tmp_path / "g.safetensors")
    ours, theirs = loaded(folder, "sdxl", "g"), loaded(tmp_path, "sdxl", "g")
    assert torch.equal(pooled(encode(ours)), pooled(encode(theirs)))


def test_the_encoders_inside_an_sdxl_checkpoint_are_those_of_files(
    folder: Path, tmp_path: Path
) -> None:
    whole = {
        f"conditioner.embedders.0.transformer.{name}": one for name, one in made(OWN["l"]).items()
    }
    open_clip = as_open_clip(made(OWN["g"]))
    whole |= {f"conditioner.embedders.1.model.{name}": one for name, one in open_clip.items()}
    save_file(whole, tmp_path / "sdxl.safetensors")
    apart, together = loaded(folder, "sdxl", "l", "g"), loaded(tmp_path, "sdxl", "sdxl")
    assert torch.equal(encode(apart).cond, encode(together).cond)


def test_what_a_file_has_beside_its_text_encoder_is_left(folder: Path, tmp_path: Path) -> None:
    """A whole CLIP has a half for pictures, a language model a head."""
    more = {"vision_model.post_layernorm.weight": torch.ones(4), "logit_scale": torch.ones(())}
    save_file(made(OWN["l"]) | more, tmp_path / "l.safetensors")
    head = {"lm_head.weight": torch.ones(4, QWEN_WIDTH)}
    save_file(made(OWN["qwen"]) | head, tmp_path / "qwen.safetensors")
    repeated = {"encoder.embed_tokens.weight": made(OWN["t5"])["shared.weight"]}
    save_file(made(OWN["t5"]) | repeated, tmp_path / "t5.safetensors")
    for family, name in (("sd15", "l"), ("z_image", "qwen"), ("sd3", "t5")):
        ours, theirs = loaded(folder, family, name), loaded(tmp_path, family, name)
        assert torch.equal(encode(ours).cond, encode(theirs).cond)


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
    assert held.num_bytes < 0.6 * wide.num_bytes
    assert build(held.ref).num_bytes == pytest.approx(held.num_bytes, rel=0.01)
    assert torch.equal(encode(held).cond, encode(wide).cond)
    weights = held.patch_target().module.parameters()
    assert {weight.dtype for weight in weights} == {dtype}
