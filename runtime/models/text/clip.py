"""CLIP's text transformers, L and G: token ids to vectors and a pooled one.

Which layer a family takes, and whether its vectors go through the final norm, is the family's
business (`ClipUse`). Source: CLIP (arXiv 2103.00020), section 2.4; design notes on models,
section 5; ComfyUI 0.8.0, `bare/` in `clip.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import torch

from ....graph_import.text_encoders import CLIP_G, CLIP_L
from ..checkpoint import Check, Weights, build_module, no_check
from ..clip_tokenizer import BEGIN_ID, CHUNK_LENGTH, END_ID
from ..embedding_files import Inversions
from ..lora_file import Part
from ..patch_target import PatchTarget, module_spellings
from ..weight_files import problem
from .open_clip import is_open_clip, renamed_open_clip, transposed
from .places import CLIP_TOKENS, TEXT_LEVEL
from .scaled import split_scales
from .transformer import Hidden, embedded

STORED: Final = torch.float16
PROJECTION: Final = "text_projection"
EARLY_NAMES: Final = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "out_proj": "to_out"}


class ClipKind(msgspec.Struct, frozen=True, kw_only=True):
    """What shapes don't tell of a CLIP.

    Args:
        activation: by transformers' name.
        pad_id: what follows the end token.
        head_width: of its attention.
        stored: what its weights are rounded to; None: not at all.
    """

    name: str
    part: Part
    activation: str
    pad_id: int
    head_width: int = 64
    stored: torch.dtype | None = STORED


class ClipUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a family takes of a CLIP.

    Args:
        layer: -1 the last, -2 the one before it.
        is_normed: the layer's vectors go through the final norm.
        is_projected: the pooled vector goes through the projection.
    """

    layer: int = -1
    is_normed: bool = True
    is_projected: bool = False


L: Final = ClipKind(name=CLIP_L, part=Part.CLIP_L, activation="quick_gelu", pad_id=END_ID)
G: Final = ClipKind(name=CLIP_G, part=Part.CLIP_G, activation="gelu", pad_id=0)


class ClipTransformer:
    """A loaded CLIP. Its weights count as float16, its arithmetic is float32.

    That rounding is part of the picture: leaving it out costs 2e-3 of the conditioning.
    """

    def __init__(
        self,
        weights: Weights,
        kind: ClipKind,
        use: ClipUse,
        device: str = "cpu",
        check: Check = no_check,
    ) -> None:
        """Raises: ModelFileProblem: weights are missing, left over or misshapen."""
        from transformers import CLIPTextConfig, CLIPTextModelWithProjection

        weights, _ = split_scales(weights, None)
        renamed = _renamed(weights)
        whole_weights = Weights(file=weights.file, prefix=weights.prefix, tensors=renamed)
        if not use.is_projected:
            # What isn't used needs no matrix of the file, which may have none.
            width = whole_weights.shape(TEXT_LEVEL + CLIP_TOKENS, 2)[1]
            renamed[f"{PROJECTION}.weight"] = torch.eye(width)
        config = CLIPTextConfig(**clip_config(whole_weights, kind))
        whole = build_module(
            lambda: CLIPTextModelWithProjection(config),
            weights,
            renamed,
            dtype=torch.float32,
            stored=kind.stored,
            device=device,
            check=check,
        )
        self.module: Any = whole if use.is_projected else whole.text_model
        self._text: Any = whole.text_model
        self._kind = kind
        self._use = use
        self._device = device

    @property
    def width(self) -> int:
        return int(self._text.config.hidden_size)

    @property
    def vocabulary(self) -> int:
        return int(self._text.config.vocab_size)

    def empty(self, length: int) -> tuple[int, ...]:
        return (BEGIN_ID, END_ID, *[self._kind.pad_id] * (length - 2))

    def forward(self, ids: torch.Tensor, inversions: Inversions, layer: int | None) -> Hidden:
        """A layer's vectors, and the last one's at the first end token.

        The model's own forward takes ids alone, and no vectors in their place. A layer beyond the
        first is the last.
        """
        text = self._text
        vectors = embedded(text.embeddings.token_embedding, ids, inversions)
        states = [text.embeddings(inputs_embeds=vectors)]
        future = torch.full((CHUNK_LENGTH, CHUNK_LENGTH), -torch.inf, device=self._device).triu(1)
        for block in text.encoder.layers:
            states.append(block(states[-1], attention_mask=future[None, None]))
        last = text.final_layer_norm(states[-1])
        ends = (ids == END_ID).int().argmax(dim=-1)
        pooled = last[torch.arange(len(ids)), ends]
        if self._use.is_projected:
            pooled = self.module.text_projection(pooled)
        chosen = self._chosen(states, last, self._use.layer if layer is None else layer)
        return chosen.to("cpu", torch.float32), pooled.to("cpu", torch.float32)

    def _chosen(self, states: list[torch.Tensor], last: torch.Tensor, layer: int) -> torch.Tensor:
        is_there = -len(self._text.encoder.layers) <= layer < 0
        if not is_there or (layer == -1 and self._use.is_normed):
            return last
        if self._use.is_normed:
            normed: torch.Tensor = self._text.final_layer_norm(states[layer])
            return normed
        return states[layer]

    def patch_target(self) -> PatchTarget:
        """The weights, which stay rounded to what they are stored as."""
        paths = [name.rpartition(".")[0] for name, _ in self.module.named_parameters()]
        whole = [(f"{TEXT_LEVEL}{path.removeprefix(TEXT_LEVEL)}", path) for path in paths]
        bare = [(path.removeprefix(TEXT_LEVEL), path) for path in paths]
        # What early scripts of diffusers called the attention's matrices.
        early = [
            (name.replace(own, other), path)
            for name, path in whole
            for own, other in EARLY_NAMES.items()
            if name.endswith(own)
        ]
        return PatchTarget(
            part=self._kind.part,
            module=self.module,
            modules=module_spellings(self.module, [*bare, *whole, *early]),
            stored=self._kind.stored,
        )


def clip_config(weights: Weights, kind: ClipKind) -> dict[str, Any]:
    """Arguments of `CLIPTextConfig`, from shapes. Raises: ModelFileProblem."""
    vocabulary, width = weights.shape(TEXT_LEVEL + CLIP_TOKENS, 2)
    if vocabulary <= END_ID:
        raise problem(
            weights.file.path, f"its vocabulary has {vocabulary} entries; CLIP's has {END_ID + 1}"
        )
    inner = weights.shape(f"{TEXT_LEVEL}encoder.layers.0.mlp.fc1.weight", 2)[0]
    projection = f"{PROJECTION}.weight"
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "projection_dim": weights.shape(projection, 2)[0] if projection in weights else width,
        "intermediate_size": inner,
        "num_hidden_layers": weights.count(r"text_model\.encoder\.layers\.(\d+)\."),
        "num_attention_heads": max(1, width // kind.head_width),
        "max_position_embeddings": CHUNK_LENGTH,
        "hidden_act": kind.activation,
        "bos_token_id": BEGIN_ID,
        "eos_token_id": END_ID,
        "pad_token_id": END_ID,
    }


def _renamed(weights: Weights) -> dict[str, torch.Tensor]:
    """The text's part under transformers' names; a whole CLIP has a part for pictures, too."""
    tensors: Mapping[str, torch.Tensor] = weights.tensors
    if is_open_clip(tensors):
        return renamed_open_clip(tensors)
    if not any(name.startswith(TEXT_LEVEL) for name in tensors):
        return {TEXT_LEVEL + name: tensor for name, tensor in tensors.items()}
    kept = (TEXT_LEVEL, f"{PROJECTION}.")
    renamed = {name: tensor for name, tensor in tensors.items() if name.startswith(kept)}
    if PROJECTION in tensors:  # as open_clip has it
        renamed[f"{PROJECTION}.weight"] = transposed(tensors[PROJECTION])
    return renamed
