"""Small text encoders with random weights, as files of their own; those of the model goldens."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import torch
from nodeloom.runtime.models.tiny import TextSize, text_spec
from nodeloom.runtime.models.weight_spec import Spec, materialise

BUCKETS = 32
QWEN_HEAD = 128
LARGEST_8_BITS = 448.0  # of float8_e4m3fn


class T5Size(msgspec.Struct, frozen=True, kw_only=True):
    """Widths of the vectors, of all heads together and of the feed-forwards; heads, layers, ids."""

    width: int = 256
    num_layers: int = 2
    inner: int = 128
    feed_forward: int = 256
    num_heads: int = 2
    vocabulary: int = 32128


TINY_CLIP_G = TextSize(width=128, num_layers=2, inner=256)
TINY_T5 = T5Size()


def clip_g_spec(size: TextSize = TINY_CLIP_G) -> Spec:
    """CLIP-G is CLIP-L's kind with a projection."""
    spec = text_spec(size)
    spec.weight("text_projection.weight", size.width, size.width)
    return spec


def t5_spec(size: T5Size = TINY_T5) -> Spec:
    spec = Spec()
    spec.noise("shared.weight", size.vocabulary, size.width, std=1.0)
    for number in range(size.num_layers):
        block = f"encoder.block.{number}.layer"
        attention, gated = f"{block}.0.SelfAttention", f"{block}.1.DenseReluDense"
        # T5 doesn't divide scores by the heads' width, so queries are smaller.
        gain = (size.num_heads / size.inner) ** 0.5
        spec.weight(f"{attention}.q.weight", size.inner, size.width, gain=gain)
        for matrix in ("k", "v"):
            spec.weight(f"{attention}.{matrix}.weight", size.inner, size.width)
        spec.weight(f"{attention}.o.weight", size.width, size.inner)
        if number == 0:
            table = f"{attention}.relative_attention_bias.weight"
            spec.noise(table, BUCKETS, size.num_heads, std=0.5)
        scale(spec, f"{block}.0.layer_norm", size.width)
        for matrix in ("wi_0", "wi_1"):
            spec.weight(f"{gated}.{matrix}.weight", size.feed_forward, size.width)
        spec.weight(f"{gated}.wo.weight", size.width, size.feed_forward)
        scale(spec, f"{block}.1.layer_norm", size.width)
    scale(spec, "encoder.final_layer_norm", size.width)
    return spec


def qwen3_spec(*, width: int = 128, num_layers: int = 3, vocabulary: int = 151936) -> Spec:
    """Qwen3 with two heads that share their keys."""
    spec, inner = Spec(), 2 * width
    spec.noise("model.embed_tokens.weight", vocabulary, width, std=0.5)
    for number in range(num_layers):
        layer = f"model.layers.{number}"
        spec.weight(f"{layer}.self_attn.q_proj.weight", 2 * QWEN_HEAD, width)
        for matrix in ("k_proj", "v_proj"):
            spec.weight(f"{layer}.self_attn.{matrix}.weight", QWEN_HEAD, width)
        spec.weight(f"{layer}.self_attn.o_proj.weight", width, 2 * QWEN_HEAD, gain=0.5)
        for matrix in ("gate_proj", "up_proj"):
            spec.weight(f"{layer}.mlp.{matrix}.weight", inner, width)
        spec.weight(f"{layer}.mlp.down_proj.weight", width, inner, gain=0.5)
        for norm in ("self_attn.q_norm", "self_attn.k_norm"):
            scale(spec, f"{layer}.{norm}", QWEN_HEAD)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            scale(spec, f"{layer}.{norm}", width)
    scale(spec, "model.norm", width)
    return spec


def scale(spec: Spec, name: str, width: int) -> None:
    """A norm without bias."""
    spec[f"{name}.weight"] = ((width,), 1.0, 0.1)


def made(spec: Spec, seed: int = 0) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in materialise(spec, seed).items()}


def scaled(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """Matrices of the layers in 8 bits; scales are powers of two, so the same everywhere."""
    found = {"scaled_fp8": torch.zeros(2, dtype=torch.float8_e4m3fn)}
    for name, tensor in tensors.items():
        is_matrix = tensor.dim() == 2 and ".layer." in name and "relative" not in name
        if not is_matrix:
            found[name] = tensor
            continue
        largest = tensor.float().abs().max()
        factor = torch.exp2(torch.ceil(torch.log2(largest / LARGEST_8_BITS)))
        found[name] = (tensor.float() / factor).to(torch.float8_e4m3fn)
        found[f"{name.removesuffix('weight')}scale_weight"] = factor.reshape(1)
    return found
