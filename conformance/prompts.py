"""prompts.json and tokens.json: ids, weights and words of texts, for every model recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from nodeloom.graph_import.prompt_text import parse_weights
from nodeloom.graph_import.text_encoders import CLIP_G, CLIP_L, T5XXL
from nodeloom.runtime.models.clip_tokenizer import ClipTokenizer
from nodeloom.runtime.models.text.family_tokenizers import CLIP_H, tokenizers
from nodeloom.runtime.models.text.pieces import Chunk
from nodeloom.runtime.models.text.tokenizer import Padding
from safetensors import safe_open

from .case import Case, Outcome, close, equal, worst
from .prompt_nodes import run_node

TOLERANCE: Final = 1e-9
FIRST_VECTOR_ID: Final = 1_000_000  # beyond every vocabulary
ENCODERS: Final = {"l": CLIP_L, "g": CLIP_G, "h": CLIP_H}
T5_LENGTHS: Final = {"sd3": 77, "flux": 256}

Vector = tuple[str, str, int]  # an embedding's file, tensor and row


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each text and encoder, for each text's weights, and for each node."""
    recorded = json.loads((goldens / "prompts.json").read_text("utf-8"))
    prompts = Prompts(recorded, vectors(goldens / "embeddings"))
    yield from _texts(prompts, recorded["models"])
    for prompt, segments in recorded["token_weights"].items():
        run = partial(_segments, recorded["prompts"][prompt], segments)
        yield Case(f"prompts/token_weights/{prompt}", run)
    for number, option in enumerate(recorded["options"]):
        yield Case(f"prompts/options/{number}", partial(prompts.option, option))
    for prompt, wanted in recorded["disable_weights_sd15"].items():
        run = partial(prompts.unweighted, prompt, wanted)
        yield Case(f"prompts/disable_weights_sd15/{prompt}", run)
    for prompt, words in recorded["word_ids_sd15_l"].items():
        yield Case(f"prompts/word_ids_sd15_l/{prompt}", partial(prompts.words, prompt, words))
    for number, node in enumerate(recorded["nodes"]):
        yield Case(f"prompts/nodes/{number}/{node['node']}", partial(prompts.node, node))
    for number, entry in enumerate(json.loads((goldens / "tokens/tokens.json").read_text("utf-8"))):
        for key in sorted(entry.keys() - {"text"}):
            run = partial(_tokens, entry["text"], key, entry[key])
            yield Case(f"prompts/tokens/{number}/{key}", run)


def _texts(prompts: Prompts, models: Mapping[str, Any]) -> Iterator[Case]:
    for model, by_prompt in models.items():
        for prompt, by_encoder in by_prompt.items():
            for encoder, wanted in by_encoder.items():
                run = partial(prompts.text, model, prompt, encoder, wanted)
                yield Case(f"prompts/{model}/{prompt}/{encoder}", run)


def vectors(folder: Path) -> dict[str, dict[str, list[Vector]]]:
    """The vectors of embeddings' files, by the name in a text and by tensor."""
    found = {}
    for path in sorted(folder.rglob("*.safetensors")):
        file = path.relative_to(folder).as_posix()
        with safe_open(path, "pt") as tensors:
            rows = {
                key: [(file, key, row) for row in range(tensors.get_slice(key).get_shape()[0])]
                for key in sorted(tensors.keys())
            }
        found[file] = found[file.removesuffix(".safetensors")] = rows
    return found


class Prompts:
    """The texts and chunks of prompts.json, and ids that stand for rows of embeddings."""

    def __init__(
        self, recorded: Mapping[str, Any], files: Mapping[str, Mapping[str, list[Vector]]]
    ) -> None:
        self._texts: Mapping[str, str] = recorded["prompts"]
        self._chunks: Sequence[Mapping[str, Any]] = recorded["chunks"]
        self._files = files
        rows = sorted({row for file in files.values() for found in file.values() for row in found})
        self._ids = {row: FIRST_VECTOR_ID + number for number, row in enumerate(rows)}

    def text(self, model: str, prompt: str, encoder: str, wanted: Sequence[int]) -> Outcome:
        name = ENCODERS.get(encoder, encoder)
        tokenizer = tokenizers(model)[name]
        return self._compared(tokenizer.chunks(self._texts[prompt], self._names(name)), wanted)

    def option(self, option: Mapping[str, Any]) -> Outcome:
        given = option["tokenizer_options"]
        padding = Padding(
            min_padding=given.get("t5xxl_min_padding", 0),
            min_length=given.get("t5xxl_min_length", T5_LENGTHS[option["model"]]),
        )
        tokenizer = tokenizers(option["model"], padding)[T5XXL]
        return self._compared(tokenizer.chunks(self._texts[option["prompt"]]), option["t5xxl"])

    def unweighted(self, prompt: str, wanted: Sequence[int]) -> Outcome:
        ours = ClipTokenizer(is_weighted=False).chunks(self._texts[prompt])
        return self._compared(ours, wanted)

    def words(self, prompt: str, wanted: Sequence[Sequence[int]]) -> Outcome:
        ours = ClipTokenizer().chunks(self._texts[prompt], self._names(CLIP_L))
        return equal([list(chunk.words) for chunk in ours], wanted)

    def node(self, node: Mapping[str, Any]) -> Outcome:
        ours, beside = run_node(node["node"], node["model"], node["inputs"])
        (call,) = node["calls"]
        chunks = [
            self._compared(ours[ENCODERS.get(encoder, encoder)], wanted)
            for encoder, wanted in call["tokens"].items()
        ]
        return worst([*chunks, equal(beside, call["add_dict"])])

    def _names(self, encoder: str) -> dict[str, list[int]]:
        """Ids by the names of all embeddings; ComfyUI takes a file's first tensor where none is
        for the encoder."""
        return {
            name: [self._ids[row] for row in rows.get(encoder) or next(iter(rows.values()))]
            for name, rows in self._files.items()
        }

    def _compared(self, ours: Sequence[Chunk], wanted: Sequence[int]) -> Outcome:
        return _chunks(ours, [self._chunk(self._chunks[index]) for index in wanted])

    def _chunk(self, chunk: Mapping[str, Any]) -> Mapping[str, Any]:
        ids = [
            self._ids[id_["file"], id_["key"], id_["row"]] if isinstance(id_, dict) else id_
            for id_ in chunk["ids"]
        ]
        return {"ids": ids, "weights": chunk["weights"]}


def _segments(text: str, wanted: Sequence[tuple[str, float]]) -> Outcome:
    ours = parse_weights(text)
    texts = equal([segment.text for segment in ours], [segment for segment, _ in wanted])
    if not texts.passes:
        return texts
    return _numbers([segment.weight for segment in ours], [weight for _, weight in wanted])


def _tokens(text: str, key: str, wanted: Sequence[Mapping[str, Any]]) -> Outcome:
    family, encoder = key.replace("sd1.", "sd15.").split(".")
    tokenizer = tokenizers(family)[ENCODERS.get(encoder, encoder)]
    return _chunks(tokenizer.chunks(text), wanted)


def _chunks(ours: Sequence[Chunk], wanted: Sequence[Mapping[str, Any]]) -> Outcome:
    ids = equal([list(chunk.ids) for chunk in ours], [chunk["ids"] for chunk in wanted])
    if not ids.passes or not ours:
        return ids
    return worst(
        [
            _numbers(chunk.weights, recorded.get("weights") or [1.0] * len(chunk.ids))
            for chunk, recorded in zip(ours, wanted, strict=True)
        ]
    )


def _numbers(ours: Sequence[float], wanted: Sequence[float | str]) -> Outcome:
    recorded = [float(number) for number in wanted]
    return close(
        torch.tensor(ours, dtype=torch.float64),
        torch.tensor(recorded, dtype=torch.float64),
        TOLERANCE,
    )
