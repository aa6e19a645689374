"""Names in LoRA files, as trainers spell them, and the module that each is for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import Role
from nodeloom.runtime.models.headers import inspect_lora
from nodeloom.runtime.models.lora_file import LoraFile, Part, Slot, read_lora
from nodeloom.runtime.models.weight_files import identify
from safetensors.numpy import save_file


def names(tmp_path: Path, *keys: str) -> LoraFile:
    """A file with these keys, read."""
    path = tmp_path / "lora.safetensors"
    save_file({key: np.ones((2, 2), np.float16) for key in keys}, path)
    return read_lora(identify(path))


ATTENTION = "down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"
DOTTED = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
LDM = "input_blocks_1_1_transformer_blocks_0_attn1_to_q"
TEXT = "text_model_encoder_layers_0_self_attn_q_proj"
DOTTED_TEXT = "text_model.encoder.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("key", "part", "path", "slot"),
    [
        (f"lora_unet_{ATTENTION}.lora_up.weight", Part.DENOISER, ATTENTION, Slot.UP),
        (f"lora_unet_{LDM}.lora_down.weight", Part.DENOISER, LDM, Slot.DOWN),
        (f"lora_te_{TEXT}.alpha", Part.CLIP_L, TEXT, Slot.ALPHA),
        (f"lora_te1_{TEXT}.hada_w1_a", Part.CLIP_L, TEXT, Slot.HADA_W1_A),
        (f"lora_te2_{TEXT}.lokr_w2_b", Part.CLIP_G, TEXT, Slot.LOKR_W2_B),
        (f"unet.{DOTTED}.lora_A.weight", Part.DENOISER, ATTENTION, Slot.DOWN),
        (f"unet.{DOTTED}.lora_B.default.weight", Part.DENOISER, ATTENTION, Slot.UP),
        (f"unet.{DOTTED}.lora.up.weight", Part.DENOISER, ATTENTION, Slot.UP),
        (f"unet.{DOTTED}.lora_magnitude_vector", Part.DENOISER, ATTENTION, Slot.DORA_SCALE),
        (
            "unet.mid_block.attentions.0.attn1.processor.to_out_lora.down.weight",
            Part.DENOISER,
            "mid_block_attentions_0_attn1_to_out",
            Slot.DOWN,
        ),
        (f"base_model.model.{DOTTED}.lora_A.weight", Part.DENOISER, ATTENTION, Slot.DOWN),
        (f"base_model.model.{DOTTED_TEXT}.lora_A.weight", Part.CLIP_L, TEXT, Slot.DOWN),
        (f"text_encoder.{DOTTED_TEXT}.lora_linear_layer.up.weight", Part.CLIP_L, TEXT, Slot.UP),
        ("diffusion_model.input_blocks.0.0.diff", Part.DENOISER, "input_blocks_0_0", Slot.DIFF),
        ("diffusion_model.out.2.diff_b", Part.DENOISER, "out_2", Slot.DIFF_B),
        (f"lycoris_{ATTENTION}.lora_mid.weight", Part.DENOISER, ATTENTION, Slot.MID),
        ("lora_unet_conv_norm_out.w_norm", Part.DENOISER, "conv_norm_out", Slot.DIFF),
        (f"{DOTTED}.lora_B.weight", Part.DENOISER, ATTENTION, Slot.UP),
        (f"{DOTTED_TEXT}.set_weight", Part.CLIP_L, TEXT, Slot.SET_WEIGHT),
    ],
)  # fmt: skip
def test_a_key_tells_its_model_its_module_and_what_it_is(
    tmp_path: Path, key: str, part: Part, path: str, slot: Slot
) -> None:
    lora = names(tmp_path, key)
    (module,) = lora.modules
    assert (module.part, module.path, dict(module.keys)) == (part, path, {slot: key})
    assert lora.unknown == ()


def test_the_keys_of_one_module_belong_together(tmp_path: Path) -> None:
    stem = f"lora_unet_{ATTENTION}"
    keys = {
        Slot.UP: f"{stem}.lora_up.weight",
        Slot.DOWN: f"{stem}.lora_down.weight",
        Slot.ALPHA: f"{stem}.alpha",
    }
    lora = names(tmp_path, *keys.values())
    (module,) = lora.modules
    assert dict(module.keys) == keys
    assert lora.num_tensors == 3


def test_a_file_claims_the_models_that_its_keys_are_for(tmp_path: Path) -> None:
    lora = names(tmp_path, f"lora_unet_{ATTENTION}.alpha", "what.ever", "lora_unet_x.lora_sideways")
    assert lora.claims(Role.DENOISER)
    assert not lora.claims(Role.TEXT_ENCODER)
    assert set(lora.unknown) == {"what.ever", "lora_unet_x.lora_sideways"}


def test_a_file_without_a_known_key_is_no_lora(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"decoder.weight": np.ones(2, np.float16)}, path)
    assert read_lora(identify(path)).modules == ()
    with pytest.raises(ModelFileProblem, match=r"other\.safetensors: this is no LoRA"):
        inspect_lora(path)


def test_a_pickled_or_truncated_file_is_refused(tmp_path: Path) -> None:
    names(tmp_path, f"lora_unet_{ATTENTION}.alpha")
    whole = (tmp_path / "lora.safetensors").read_bytes()
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(whole[:-1])
    with pytest.raises(ModelFileProblem, match=r"cut\.safetensors.*truncated"):
        read_lora(identify(cut))
    pickled = tmp_path / "old.safetensors"
    pickled.write_bytes(b"PK\x03\x04" + whole)
    with pytest.raises(ModelFileProblem, match=r"old\.safetensors.*pickled"):
        inspect_lora(pickled)
