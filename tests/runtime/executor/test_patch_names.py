"""Which weights a file changes: every spelling of their names, and what is told of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.loras import lora_spec, write_lora
from kit.patched import (
    ATTENTION,
    DOTTED,
    WEIGHT,
    WIDTH,
    copies,
    differing,
    go_on,
    lora_file,
    square,
    weights,
    with_patches,
)
from nodeloom.graph_import.handles import ModelRef, Role
from nodeloom.runtime.errors import NodeFailed, PatchMatchesNothing
from nodeloom.runtime.executor.model_cache import ModelCache
from nodeloom.runtime.models.registry import build

Refs = dict[Role, ModelRef]
Files = dict[str, Path]


@pytest.fixture
def cache() -> ModelCache:
    return ModelCache(2**30, "cpu", build)


def test_the_keys_of_a_kohya_file_are_all_applied_each_in_its_model(
    cache: ModelCache, refs: Refs, tmp_path: Path
) -> None:
    keys, path = lora_spec("lora"), write_lora(tmp_path / "lora.safetensors")
    for role, prefix in ((Role.DENOISER, "lora_unet_"), (Role.TEXT_ENCODER, "lora_te_")):
        ref = with_patches(refs[role], (path, 1.0))
        cache.get(ref, go_on)
        (coverage,) = cache.coverage(ref)
        assert coverage.key == refs[role].key
        assert coverage.file == ref.patches[0].file
        assert coverage.num_applied == sum(key.startswith(prefix) for key in keys)


@pytest.mark.parametrize(
    "stem",
    [
        f"lora_unet_{ATTENTION}",
        f"unet.{DOTTED}",
        DOTTED,
        "diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q",
        "lora_unet_input_blocks_1_1_transformer_blocks_0_attn1_to_q",
        f"base_model.model.{DOTTED}",
    ],
)
def test_every_spelling_of_a_module_finds_it(
    cache: ModelCache, refs: Refs, tmp_path: Path, stem: str
) -> None:
    path = lora_file(tmp_path / "one.safetensors", square(stem))
    before = copies(cache.get(refs[Role.DENOISER], go_on))
    model = cache.get(with_patches(refs[Role.DENOISER], (path, 1.0)), go_on)
    assert differing(before, weights(model)) == {WEIGHT}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (
            "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.processor.to_out_lora.{}",
            "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_out.0.weight",
        ),
        ("unet.mid_block.attentions.0.proj_in.lora.{}", "mid_block.attentions.0.proj_in.weight"),
    ],
)  # fmt: skip
def test_spellings_of_diffusers_scripts_find_their_modules(
    cache: ModelCache, refs: Refs, tmp_path: Path, key: str, name: str
) -> None:
    width = 2 * WIDTH if "mid_block" in key else WIDTH
    shapes = {key.format("up.weight"): (width, 2), key.format("down.weight"): (2, width)}
    path = lora_file(tmp_path / "one.safetensors", shapes)
    before = copies(cache.get(refs[Role.DENOISER], go_on))
    model = cache.get(with_patches(refs[Role.DENOISER], (path, 1.0)), go_on)
    assert differing(before, weights(model)) == {name}


def test_early_names_of_a_text_encoder_find_their_modules(
    cache: ModelCache, refs: Refs, tmp_path: Path
) -> None:
    stem = "text_encoder.text_model.encoder.layers.1.self_attn.to_out_lora"
    shapes = {f"{stem}.up.weight": (64, 2), f"{stem}.down.weight": (2, 64)}
    path = lora_file(tmp_path / "one.safetensors", shapes)
    before = copies(cache.get(refs[Role.TEXT_ENCODER], go_on))
    model = cache.get(with_patches(refs[Role.TEXT_ENCODER], (path, 1.0)), go_on)
    assert differing(before, weights(model)) == {
        "clip_l.encoder.layers.1.self_attn.out_proj.weight"
    }


def test_norms_and_biases_take_differences(cache: ModelCache, refs: Refs, tmp_path: Path) -> None:
    shapes = {
        "lora_unet_conv_norm_out.w_norm": (WIDTH,),
        "lora_unet_conv_norm_out.b_norm": (WIDTH,),
        "lora_unet_conv_in.diff": (WIDTH, 4, 3, 3),
        "lora_unet_conv_in.diff_b": (WIDTH,),
    }
    path = lora_file(tmp_path / "norm.safetensors", shapes)
    before = copies(cache.get(refs[Role.DENOISER], go_on))
    ref = with_patches(refs[Role.DENOISER], (path, 1.0))
    model = cache.get(ref, go_on)
    assert differing(before, weights(model)) == {
        f"{module}.{leaf}" for module in ("conv_norm_out", "conv_in") for leaf in ("weight", "bias")
    }
    assert cache.coverage(ref)[0].num_applied == 4


def test_a_file_for_another_model_matches_nothing_and_is_named(
    cache: ModelCache, refs: Refs, tmp_path: Path
) -> None:
    path = lora_file(
        tmp_path / "flux.safetensors", square("lora_unet_double_blocks_0_img_attn_qkv")
    )
    before = copies(cache.get(refs[Role.DENOISER], go_on))
    with pytest.raises(PatchMatchesNothing, match=r"flux\.safetensors matches nothing") as caught:
        cache.get(with_patches(refs[Role.DENOISER], (path, 1.0)), go_on)
    assert caught.value.code == "patch_matches_nothing"
    assert isinstance(caught.value, NodeFailed)
    assert caught.value.details["ignored"]
    assert not differing(before, weights(cache.get(refs[Role.DENOISER], go_on)))


def test_a_file_whose_keys_all_have_another_shape_matches_nothing(
    cache: ModelCache, refs: Refs, tmp_path: Path
) -> None:
    stem = f"lora_unet_{ATTENTION}"
    shapes = {f"{stem}.lora_up.weight": (64, 2), f"{stem}.lora_down.weight": (2, 64)}
    path = lora_file(tmp_path / "wide.safetensors", shapes)
    before = copies(cache.get(refs[Role.DENOISER], go_on))
    with pytest.raises(PatchMatchesNothing, match="2 have another shape"):
        cache.get(with_patches(refs[Role.DENOISER], (path, 1.0)), go_on)
    assert not differing(before, weights(cache.get(refs[Role.DENOISER], go_on)))


def test_keys_that_find_no_place_are_counted_and_named(
    cache: ModelCache, refs: Refs, tmp_path: Path
) -> None:
    stem, gone = f"lora_unet_{ATTENTION}", "lora_unet_down_blocks_7_attentions_0_proj_in"
    wide = "lora_unet_mid_block_attentions_0_proj_in"
    shapes = square(stem) | square(gone) | square(wide, rank=3) | {"strange.key": (2,)}
    shapes |= {f"lora_te_{index}.lora_up.weight": (2, 2) for index in range(3)}
    shapes |= {"lora_unet_conv_in.lora_up.weight": (WIDTH, 2, 1, 1)}  # its other half is missing
    path = lora_file(tmp_path / "mixed.safetensors", shapes)
    ref = with_patches(refs[Role.DENOISER], (path, 1.0))
    cache.get(ref, go_on)
    (coverage,) = cache.coverage(ref)
    assert coverage.num_applied == 2
    assert set(coverage.ignored) == {
        *square(gone),
        "strange.key",
        "lora_unet_conv_in.lora_up.weight",
    }
    assert set(coverage.misshapen) == set(square(wide))
    assert (coverage.num_ignored, coverage.num_misshapen) == (4, 2)


def test_a_report_names_a_few_keys_and_counts_all(
    cache: ModelCache, refs: Refs, tmp_path: Path
) -> None:
    shapes = square(f"lora_unet_{ATTENTION}")
    shapes |= {f"lora_unet_nowhere_{index}.diff": (2,) for index in range(500)}
    path = lora_file(tmp_path / "many.safetensors", shapes)
    ref = with_patches(refs[Role.DENOISER], (path, 1.0))
    cache.get(ref, go_on)
    (coverage,) = cache.coverage(ref)
    assert coverage.num_ignored == 500
    assert len(coverage.ignored) == 10


def test_a_lora_for_the_denoiser_alone_leaves_a_text_encoder_as_it_is(
    cache: ModelCache, refs: Refs, tmp_path: Path
) -> None:
    path = lora_file(tmp_path / "unet.safetensors", square(f"lora_unet_{ATTENTION}"))
    before = copies(cache.get(refs[Role.TEXT_ENCODER], go_on))
    ref = with_patches(refs[Role.TEXT_ENCODER], (path, 1.0))
    assert not differing(before, weights(cache.get(ref, go_on)))
    (coverage,) = cache.coverage(ref)
    assert (coverage.num_applied, coverage.num_ignored, coverage.num_misshapen) == (0, 0, 0)


def test_keys_for_a_second_text_encoder_are_not_put_on_the_first(
    cache: ModelCache, refs: Refs, tmp_path: Path
) -> None:
    stem = "lora_te2_text_model_encoder_layers_0_self_attn_q_proj"
    shapes = {f"{stem}.lora_up.weight": (64, 2), f"{stem}.lora_down.weight": (2, 64)}
    path = lora_file(tmp_path / "sdxl.safetensors", shapes)
    with pytest.raises(PatchMatchesNothing):
        cache.get(with_patches(refs[Role.TEXT_ENCODER], (path, 1.0)), go_on)
