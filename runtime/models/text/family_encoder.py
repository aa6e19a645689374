"""A family's text encoder: its transformers side by side, and what the family makes of them.

The encoders that a checkpoint or files of their own hold are found by their headers
(`places.py`). Each family joins the vectors in its own way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, cast

import torch

from ....graph_import import types
from ....graph_import.errors import ModelFileProblem
from ....graph_import.handles import CLIP_LAYER, T5_MIN_LENGTH, T5_MIN_PADDING, FileIdentity
from ....graph_import.model import Model
from ....graph_import.text_encoders import CLIP_G, CLIP_L, FAMILY_ENCODERS
from ...values import CondEntry, Conditioning
from ..checkpoint import Check, count_bytes, estimate_bytes, no_check, read_weights
from ..embedding_files import Inversions
from ..lora_file import Part
from ..patch_target import JointTarget, Target
from ..weight_files import check_unchanged, problem, read_header
from .clip import ClipTransformer, ClipUse, G, L
from .family_tokenizers import encoder_chunks, tokenizers
from .part import Encoded, encode_texts
from .pieces import Chunk
from .places import Place, text_places
from .qwen3 import QwenTransformer
from .t5 import T5Transformer
from .tokenizer import Padding, Tokenizer
from .transformer import Transformer

Call = Mapping[str, object]
Chunks = Mapping[str, list[Chunk]]  # by encoder
Ids = Mapping[str, Mapping[str, Sequence[int]]]  # of embeddings, by encoder and name


class FamilyTextEncoder(Model, ABC):
    """Input: text. Output: conditioning of one entry, cond float32 [1, tokens, width].

    A call may also have `texts`, a mapping of encoders to texts that they get instead, with
    `is_empty_left_out`; and `embeddings`, a mapping of names in the texts to files. The option
    `clip_layer` of the ref chooses the layer of the CLIPs.

    Attributes:
        clip_uses: what the family takes of its CLIPs.
        lora_names: encoders that the family's LoRA files call by another one's name.
        transformers: the loaded encoders, in the family's order.
    """

    clip_uses: ClassVar[Mapping[str, ClipUse]]
    lora_names: ClassVar[Mapping[Part, Part]] = MappingProxyType({})
    transformers: Mapping[str, Transformer] = MappingProxyType({})
    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("text", types.STRING)
        self.add_output("conditioning", types.CONDITIONING)

    @abstractmethod
    def join(self, encoded: Mapping[str, Encoded]) -> CondEntry:
        """What the denoiser gets of a text that these encoders encoded."""

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the encoders that the family has in the key's files; all compute in float32.

        Raises: ModelFileProblem: a file is damaged, or has none of them.
        """
        for file in self.ref.key.files:
            check_unchanged(file)
        places = self._places()
        for file in self.ref.key.files:
            if all(file != holder for holder, _ in places.values()):
                raise problem(file.path, f"it holds no text encoder of {self.ref.key.family}")
        self.transformers = {
            encoder: self._transformer(file, place, device, check)
            for encoder, (file, place) in places.items()
        }
        self._num_bytes = sum(count_bytes(one.module) for one in self.transformers.values())

    def _places(self) -> dict[str, tuple[FileIdentity, Place]]:
        """Which file holds which encoder, in the family's order; the first one found counts."""
        found: dict[str, tuple[FileIdentity, Place]] = {}
        for file in self.ref.key.files:
            for place in text_places(read_header(Path(file.path)).tensors):
                found.setdefault(place.encoder, (file, place))
        own = FAMILY_ENCODERS[self.ref.key.family]
        return {encoder: found[encoder] for encoder in own if encoder in found}

    def _transformer(
        self, file: FileIdentity, place: Place, device: str, check: Check
    ) -> Transformer:
        weights = read_weights(file, (place.prefix,), check)
        match place.encoder:
            case "clip_l" | "clip_g":
                kind = L if place.encoder == CLIP_L else G
                return ClipTransformer(
                    weights, kind, self.clip_uses[place.encoder], device=device, check=check
                )
            case "t5xxl":
                return T5Transformer(weights, device=device, check=check)
            case _:
                return QwenTransformer(weights, device=device, check=check)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the files' headers let expect."""
        if self._num_bytes is None:
            return sum(_expected_bytes(file, place) for file, place in self._places().values())
        return self._num_bytes

    def patch_target(self) -> Target:
        """The weights of all encoders."""
        targets = {name: one.patch_target() for name, one in self.transformers.items()}
        return JointTarget(targets, self.lora_names)

    def execute(self, **inputs: object) -> Mapping[str, object]:
        return self.execute_batch([inputs])[0]

    def execute_batch(self, calls: Sequence[Call]) -> list[Mapping[str, object]]:
        """Encode the texts; chunks that occur several times run once.

        Raises: NodeFailed: a text is longer than a tokenizer allows. ModelFileProblem: an
        embedding's file changed or is for another text encoder.
        """
        given = self._tokenizers()
        inversions = {
            name: Inversions(name, one.width, one.vocabulary)
            for name, one in self.transformers.items()
        }
        takers = {name: one for name, one in inversions.items() if given[name].takes_embeddings}
        texts = [self.chunks(call, given, _ids(call, takers)) for call in calls]
        encoded: list[dict[str, Encoded]] = [{} for _ in calls]
        for name, one in self.transformers.items():
            asked = [index for index, chunks in enumerate(texts) if chunks[name]]
            vectors = encode_texts(
                one, [texts[index][name] for index in asked], inversions[name], self._layer
            )
            for index, found in zip(asked, vectors, strict=True):
                encoded[index][name] = found
        return [{"conditioning": Conditioning(entries=(self.join(one),))} for one in encoded]

    def chunks(self, call: Call, given: Mapping[str, Tokenizer], ids: Ids) -> Chunks:
        """What each encoder gets; nothing where a text is left out."""
        text = cast(str, call["text"])
        texts = cast(Mapping[str, str] | None, call.get("texts"))
        if texts is not None:
            each = {name: texts.get(name, text) for name in given}
            is_left_out = bool(call.get("is_empty_left_out"))
            return encoder_chunks(given, each, ids, is_empty_left_out=is_left_out)
        return {name: given[name].chunks(text, ids.get(name, {})) for name in self.transformers}

    def _tokenizers(self) -> Mapping[str, Tokenizer]:
        options = dict(self.ref.options)
        length, padding = options.get(T5_MIN_LENGTH), options.get(T5_MIN_PADDING)
        if not isinstance(length, int) or not isinstance(padding, int):
            return tokenizers(self.ref.key.family)
        return tokenizers(self.ref.key.family, Padding(min_length=length, min_padding=padding))

    @property
    def _layer(self) -> int | None:
        layer = dict(self.ref.options).get(CLIP_LAYER)
        return layer if isinstance(layer, int) else None


def _expected_bytes(file: FileIdentity, place: Place) -> int:
    """What an encoder will hold: a CLIP is float32, others are what the file has."""
    if place.encoder in (CLIP_L, CLIP_G):
        return estimate_bytes(file, (place.prefix,))
    tensors = read_header(Path(file.path)).tensors
    offsets = [info.data_offsets for name, info in tensors.items() if name.startswith(place.prefix)]
    return sum(end - start for start, end in offsets)


def _ids(call: Call, takers: Mapping[str, Inversions]) -> Ids:
    """The ids of a call's embeddings. One that fits some of the encoders is left out of the others.

    Raises: ModelFileProblem: a file fits none of them.
    """
    files = cast(Mapping[str, FileIdentity], call.get("embeddings") or {})
    found: dict[str, dict[str, Sequence[int]]] = {encoder: {} for encoder in takers}
    for name, file in files.items():
        problems: list[ModelFileProblem] = []
        for encoder, inversions in takers.items():
            try:
                found[encoder][name] = inversions.ids(file)
            except ModelFileProblem as misfit:
                problems.append(misfit)
        if problems and len(problems) == len(takers):
            raise problems[0]
    return found


def side_by_side(encoded: Mapping[str, Encoded]) -> torch.Tensor | None:
    """The vectors of CLIP-L and CLIP-G, one after the other for each token; None: there are none.

    Where one has more tokens, those are cut off.
    """
    found = [encoded[name][0] for name in (CLIP_L, CLIP_G) if name in encoded]
    if not found:
        return None
    num_tokens = min(one.shape[1] for one in found)
    return torch.cat([one[:, :num_tokens] for one in found], dim=-1)
