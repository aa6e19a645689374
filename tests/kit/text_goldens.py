"""The forward passes of text encoders that are among the model goldens, by our transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from nodeloom.graph_import.handles import FileIdentity
from nodeloom.runtime.models.checkpoint import Weights
from nodeloom.runtime.models.embedding_files import Inversions
from nodeloom.runtime.models.text.clip import ClipTransformer, ClipUse, G, L
from nodeloom.runtime.models.text.qwen3 import QwenTransformer
from nodeloom.runtime.models.text.t5 import T5Transformer
from nodeloom.runtime.models.text.transformer import Transformer
from nodeloom.runtime.models.tiny import TINY, text_spec

from .tiny_text import clip_g_spec, made, qwen3_spec, scaled, t5_spec

NOWHERE = FileIdentity(path="tiny.safetensors", size_bytes=0, mtime_ns=0)
RAW_LAST = ClipUse(layer=-1, is_normed=False)  # the goldens' models have two layers


def weights_of(tensors: Mapping[str, torch.Tensor]) -> Weights:
    return Weights(file=NOWHERE, prefix="", tensors=tensors)


RECORDED: Mapping[str, Callable[[], Transformer]] = {
    "clip_l": lambda: ClipTransformer(weights_of(made(text_spec(TINY.text))), L, ClipUse()),
    "clip_l_penultimate": lambda: ClipTransformer(
        weights_of(made(text_spec(TINY.text))), L, RAW_LAST
    ),
    "clip_g": lambda: ClipTransformer(
        weights_of(made(clip_g_spec())), G, ClipUse(layer=-1, is_normed=False, is_projected=True)
    ),
    "t5xxl": lambda: T5Transformer(weights_of(made(t5_spec()))),
    "t5xxl_masked": lambda: T5Transformer(weights_of(made(t5_spec())), is_masked=True),
    "t5xxl_fp8_scaled": lambda: T5Transformer(weights_of(scaled(made(t5_spec())))),
    "qwen3": lambda: QwenTransformer(weights_of(made(qwen3_spec()))),
}


@torch.no_grad()
def forward(name: str, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """The vectors (`out`) and the pooled one, where there is one."""
    transformer = RECORDED[name]()
    nothing = Inversions(name, transformer.width, transformer.vocabulary)
    hidden, pooled = transformer.forward(tokens, nothing, None)
    return {"out": hidden} if pooled is None else {"out": hidden, "pooled": pooled}
