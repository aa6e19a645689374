"""T5's encoder with gated feed-forwards: token ids to vectors.

Its weights are held as their file has them, its arithmetic is float32. Padding is attended to, as
SD3 and Flux were trained, unless the user of this module asks for a mask.
Source: T5 (arXiv 1910.10683), sections 2.1 and 3.1; its version 1.1; design notes on models,
section 5.
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
from .places import T5_TOKENS
from .scaled import split_scales
from .t5_tokenizer import END_ID, PAD_ID
from .transformer import Hidden, embedded

LEVEL: Final = "encoder."
BLOCKS: Final = LEVEL + "block."
BUCKETS: Final = 32  # of distances between tokens


class T5Transformer:
    """A loaded T5. Its vectors are those of the last layer after the final norm; none is pooled.

    Args:
        is_masked: padding is not attended to.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        is_masked: bool = False,
        device: str = "cpu",
        check: Check = no_check,
    ) -> None:
        """Raises: ModelFileProblem: weights are missing, left over or misshapen."""
        from transformers import T5Config
        from transformers.models.t5.modeling_t5 import T5Stack

        weights, scales = split_scales(weights, BLOCKS)
        config = T5Config(**t5_config(weights))
        self.module: Any = build_module(
            lambda: T5Stack(config),
            weights,
            _renamed(weights),
            dtype=None,
            device=device,
            check=check,
        )
        layers = (*self.module.block, self.module.final_layer_norm)
        self._scales = {name.removeprefix(LEVEL): one.to(device) for name, one in scales.items()}
        compute_in_float32(self.module, layers, self._scales)
        self._is_masked = is_masked

    @property
    def width(self) -> int:
        return int(self.module.config.d_model)

    @property
    def vocabulary(self) -> int:
        return int(self.module.config.vocab_size)

    def empty(self, length: int) -> tuple[int, ...]:
        return (END_ID, *[PAD_ID] * (length - 1))

    def forward(self, ids: torch.Tensor, inversions: Inversions, layer: int | None) -> Hidden:
        """The vectors of the last layer, whichever is asked for."""
        vectors = embedded(self.module.embed_tokens, ids, inversions)
        mask = (ids != PAD_ID) if self._is_masked else torch.ones_like(ids)
        given = self.module(inputs_embeds=vectors, attention_mask=mask.to(vectors.device))
        return given.last_hidden_state.to("cpu", torch.float32), None

    def patch_target(self) -> PatchTarget:
        """The weights, under T5's own names."""
        paths = [name.rpartition(".")[0] for name, _ in self.module.named_parameters()]
        whole = [(f"{LEVEL}{path}", path) for path in paths]
        return PatchTarget(
            part=Part.T5XXL,
            module=self.module,
            modules=module_spellings(self.module, whole),
            stored=None,
            scales=self._scales,
        )


def t5_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `T5Config`, from shapes. Raises: ModelFileProblem."""
    block = f"{LEVEL}block.0.layer"
    vocabulary, width = weights.shape(T5_TOKENS, 2)
    buckets, heads = weights.shape(f"{block}.0.SelfAttention.relative_attention_bias.weight", 2)
    if buckets != BUCKETS:
        raise problem(weights.file.path, f"it has {buckets} buckets of distances; T5 has {BUCKETS}")
    inner = weights.shape(f"{block}.0.SelfAttention.q.weight", 2)[0]
    return {
        "vocab_size": vocabulary,
        "d_model": width,
        "num_heads": heads,
        "num_layers": weights.count(r"encoder\.block\.(\d+)\."),
        "d_kv": inner // max(1, heads),
        "d_ff": weights.shape(f"{block}.1.DenseReluDense.wo.weight", 2)[1],
        "relative_attention_num_buckets": buckets,
        "feed_forward_proj": "gated-gelu",
        "is_encoder_decoder": False,
        "use_cache": False,
    }


def _renamed(weights: Weights) -> dict[str, torch.Tensor]:
    """The stack's own names; the tokens stand once, though some files repeat them."""
    renamed = {
        name.removeprefix(LEVEL): tensor
        for name, tensor in weights.tensors.items()
        if name.startswith(LEVEL)
    }
    renamed["embed_tokens.weight"] = weights.tensors[T5_TOKENS]
    return renamed
