"""Qwen3 as a text encoder: token ids to the vectors of a late layer.

Its weights are held as their file has them, its arithmetic is float32.
Source: Qwen3 (arXiv 2505.09388), section 2; design notes on models, section 5.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from ..checkpoint import Check, Weights, build_module, no_check
from ..embedding_files import Inversions
from ..lora_file import Part
from ..patch_target import PatchTarget, module_spellings
from ..weight_files import problem
from .late_float import compute_in_float32
from .places import QWEN_LEVEL
from .qwen_tokenizer import PAD_ID
from .scaled import split_scales
from .transformer import Hidden, embedded

HEAD_WIDTH: Final = 128
ROPE_THETA: Final = 1e6
MAX_POSITIONS: Final = 40960
LAYERS: Final = QWEN_LEVEL + "layers."
LAYER: Final = -2  # what Z-Image was trained with


class QwenTransformer:
    """A loaded Qwen3. Its vectors are those of the last layer but one, without the final norm."""

    def __init__(self, weights: Weights, *, device: str = "cpu", check: Check = no_check) -> None:
        """Raises: ModelFileProblem: weights are missing, left over or misshapen."""
        from transformers import Qwen3Config, Qwen3Model

        weights, scales = split_scales(weights, LAYERS)
        config = Qwen3Config(**qwen3_config(weights))
        self.module: Any = build_module(
            lambda: Qwen3Model(config),
            weights,
            _renamed(weights),
            dtype=None,
            device=device,
            check=check,
        )
        self._scales = {
            name.removeprefix(QWEN_LEVEL): one.to(device) for name, one in scales.items()
        }
        compute_in_float32(self.module, (*self.module.layers, self.module.norm), self._scales)

    @property
    def width(self) -> int:
        return int(self.module.config.hidden_size)

    @property
    def vocabulary(self) -> int:
        return int(self.module.config.vocab_size)

    def empty(self, length: int) -> tuple[int, ...]:
        return (PAD_ID,) * length

    def forward(self, ids: torch.Tensor, inversions: Inversions, layer: int | None) -> Hidden:
        """The vectors of one layer, whichever is asked for; padding is not attended to."""
        vectors = embedded(self.module.embed_tokens, ids, inversions)
        given = self.module(
            inputs_embeds=vectors,
            attention_mask=(ids != PAD_ID).to(vectors.device),
            use_cache=False,
            output_hidden_states=True,
        )
        return given.hidden_states[LAYER].to("cpu", torch.float32), None

    def patch_target(self) -> PatchTarget:
        """The weights, under Qwen's own names."""
        paths = [name.rpartition(".")[0] for name, _ in self.module.named_parameters()]
        whole = [(f"{QWEN_LEVEL}{path}", path) for path in paths]
        return PatchTarget(
            part=Part.QWEN3_4B,
            module=self.module,
            modules=module_spellings(self.module, whole),
            stored=None,
            scales=self._scales,
        )


def qwen3_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `Qwen3Config`, from shapes. Raises: ModelFileProblem."""
    attention = f"{QWEN_LEVEL}layers.0.self_attn"
    vocabulary, width = weights.shape(f"{QWEN_LEVEL}embed_tokens.weight", 2)
    heads, shared = (
        weights.shape(f"{attention}.{matrix}_proj.weight", 2)[0] // HEAD_WIDTH for matrix in "qk"
    )
    if shared == 0 or heads % shared:
        raise problem(weights.file.path, f"its {heads} heads can't share the keys of {shared}")
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": weights.count(r"model\.layers\.(\d+)\."),
        "intermediate_size": weights.shape(f"{QWEN_LEVEL}layers.0.mlp.up_proj.weight", 2)[0],
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": HEAD_WIDTH,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
    }


def _renamed(weights: Weights) -> dict[str, torch.Tensor]:
    """Without the level that a language model's head stands beside."""
    return {
        name.removeprefix(QWEN_LEVEL): tensor
        for name, tensor in weights.tensors.items()
        if name.startswith(QWEN_LEVEL)
    }
