"""CLIP-L as SD1.5's text encoder: a text to conditioning.

A layer, by default the last, after the final norm; the pooled vector is the last layer's at the
first chunk's end token, unprojected. Source: design notes on models, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import torch

from ....graph_import import types
from ....graph_import.handles import CLIP_LAYER, FileIdentity
from ....graph_import.model import Model
from ...sampling.emphasis import has_weights, weigh
from ...values import CondEntry, Conditioning
from ..checkpoint import (
    Check,
    Weights,
    build_module,
    count_bytes,
    estimate_bytes,
    no_check,
    read_weights,
)
from ..clip_tokenizer import BEGIN_ID, CHUNK_LENGTH, END_ID, ClipTokenizer
from ..embedding_files import Inversions
from ..headers import CLIP_TOKENS, SD15_TEXT_PREFIX
from ..lora_file import Part
from ..patch_target import PatchTarget, module_spellings
from ..text.pieces import Chunk

CHUNKS_PER_FORWARD: Final = 16  # bounds the memory that a long text takes
HEAD_WIDTH: Final = 64
ENCODER: Final = "clip_l"  # what files for several encoders call it
# In a checkpoint, in one of an old layout, in a file of the encoder's own.
PREFIXES: Final = (SD15_TEXT_PREFIX + "text_model.", SD15_TEXT_PREFIX, "text_model.")
STORED: Final = torch.float16
EARLY_NAMES: Final = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "out_proj": "to_out"}

Encoded = tuple[torch.Tensor, torch.Tensor]  # hidden states [77, width] and pooled [width]


class TextEncoder(Model):
    """Input: text. Output: conditioning of one entry, cond float32 [1, n * 77, width].

    `embeddings`, a mapping of names in the text to files, may be given too. The option `clip_layer`
    of the ref chooses the layer.
    """

    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("text", types.STRING)
        self.add_output("conditioning", types.CONDITIONING)

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the encoder. Its weights count as float16, its arithmetic is float32.

        That rounding is part of the picture: leaving it out costs 2e-3 of the conditioning.
        """
        from transformers import CLIPTextConfig, CLIPTextModelWithProjection

        weights = read_weights(self.ref.key.file, PREFIXES, check)
        config = CLIPTextConfig(**text_config(weights))
        renamed = {f"text_model.{name}": tensor for name, tensor in weights.tensors.items()}
        # Only the projected embedding, which SD1.5 doesn't use, needs this matrix.
        renamed["text_projection.weight"] = torch.eye(config.hidden_size)
        whole = build_module(
            lambda: CLIPTextModelWithProjection(config),
            weights,
            renamed,
            dtype=torch.float32,
            stored=STORED,
            device=device,
            check=check,
        )
        self._module = whole.text_model
        self._device = device
        self._tokenizer = ClipTokenizer()
        self._num_bytes = count_bytes(self._module)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the file's header lets expect."""
        if self._num_bytes is None:
            return estimate_bytes(self.ref.key.file, PREFIXES)
        return self._num_bytes

    def patch_target(self) -> PatchTarget:
        """The encoder's weights, which stay rounded to what they are stored as."""
        paths = [name.rpartition(".")[0] for name, _ in self._module.named_parameters()]
        whole = [(f"text_model.{path}", path) for path in paths]
        # What early scripts of diffusers called the attention's matrices.
        early = [
            (name.replace(own, other), path)
            for name, path in whole
            for own, other in EARLY_NAMES.items()
            if name.endswith(own)
        ]
        return PatchTarget(
            part=Part.CLIP_L,
            module=self._module,
            modules=module_spellings(self._module, [*whole, *early]),
            stored=STORED,
        )

    def execute(self, **inputs: object) -> Mapping[str, object]:
        return self.execute_batch([inputs])[0]

    def execute_batch(self, calls: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Encode the texts; chunks that occur several times run once.

        Raises: NodeFailed: a text is longer than the tokenizer allows. ModelFileProblem: an
        embedding's file changed or is for another encoder.
        """
        config = self._module.config
        inversions = Inversions(ENCODER, config.hidden_size, config.vocab_size)
        texts = []
        for call in calls:
            files = cast(Mapping[str, FileIdentity], call.get("embeddings") or {})
            ids = {name: inversions.ids(file) for name, file in files.items()}
            texts.append(self._tokenizer.chunks(cast(str, call["text"]), ids))
        wanted = dict.fromkeys(chunk.ids for chunks in texts for chunk in chunks)
        empty = self._tokenizer.chunks("")[0].ids
        if any(has_weights(_weights(chunks)) for chunks in texts):
            wanted[empty] = None
        encoded = self._encode(list(wanted), inversions)
        return [{"conditioning": _condition(chunks, encoded, empty)} for chunks in texts]

    @torch.no_grad()
    def _encode(
        self, wanted: list[tuple[int, ...]], inversions: Inversions
    ) -> dict[tuple[int, ...], Encoded]:
        encoded: dict[tuple[int, ...], Encoded] = {}
        for start in range(0, len(wanted), CHUNKS_PER_FORWARD):
            group = wanted[start : start + CHUNKS_PER_FORWARD]
            hidden, pooled = self._forward(torch.tensor(group), inversions)
            for ids, states, vector in zip(group, hidden, pooled, strict=True):
                encoded[ids] = (states, vector)
        return encoded

    def _forward(
        self, ids: torch.Tensor, inversions: Inversions
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The chosen layer after the final norm, and the last one's at the first end token.

        The model's own forward takes ids alone, and no vectors in their place.
        """
        module = self._module
        words = ids.clamp(max=module.config.vocab_size - 1).to(self._device)
        embedded = inversions.put(ids, module.embeddings.token_embedding(words))
        states = [module.embeddings(inputs_embeds=embedded)]
        future = torch.full((CHUNK_LENGTH, CHUNK_LENGTH), -torch.inf, device=self._device).triu(1)
        for layer in module.encoder.layers:
            states.append(layer(states[-1], attention_mask=future[None, None]))
        last = module.final_layer_norm(states[-1])
        ends = (ids == END_ID).int().argmax(dim=-1)
        pooled = last[torch.arange(len(ids)), ends]
        chosen = last if self._layer == -1 else module.final_layer_norm(states[self._layer])
        return chosen.to("cpu", torch.float32), pooled.to("cpu", torch.float32)

    @property
    def _layer(self) -> int:
        """Which layer the conditioning is of: -1 is the last; one beyond the first is the last."""
        layer = dict(self.ref.options).get(CLIP_LAYER, -1)
        is_there = isinstance(layer, int) and -len(self._module.encoder.layers) <= layer < 0
        return cast(int, layer) if is_there else -1


def text_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `CLIPTextConfig`, from shapes."""
    vocabulary, width = weights.shape(CLIP_TOKENS, 2)
    inner = weights.shape("encoder.layers.0.mlp.fc1.weight", 2)[0]
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "projection_dim": width,
        "intermediate_size": inner,
        "num_hidden_layers": weights.count(r"encoder\.layers\.(\d+)\."),
        "num_attention_heads": max(1, width // HEAD_WIDTH),
        "max_position_embeddings": CHUNK_LENGTH,
        "hidden_act": "quick_gelu",
        "bos_token_id": BEGIN_ID,
        "eos_token_id": END_ID,
        "pad_token_id": END_ID,
    }


def _weights(chunks: Sequence[Chunk]) -> list[tuple[float, ...]]:
    return [chunk.weights for chunk in chunks]


def _condition(
    chunks: Sequence[Chunk],
    encoded: Mapping[tuple[int, ...], Encoded],
    empty: tuple[int, ...],
) -> Conditioning:
    hidden = torch.stack([encoded[chunk.ids][0] for chunk in chunks])
    first, pooled = encoded[chunks[0].ids]
    # Where no text has weights the empty one wasn't encoded, and `weigh` doesn't look at it.
    unmoved = encoded[empty][0] if empty in encoded else first
    cond = weigh(hidden, unmoved, _weights(chunks))
    return Conditioning(entries=(CondEntry(cond=cond, pooled=pooled[None].clone()),))
