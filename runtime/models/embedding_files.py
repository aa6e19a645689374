"""Textual inversions: files of vectors that take the place of token embeddings.

Source: design notes on models, section 5; textual inversion (arXiv 2208.01618), section 4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from ...graph_import.handles import FileIdentity
from .checkpoint import read_weights
from .weight_files import problem, read_header

MAX_VECTORS: Final = 4096
PLAIN_NAME: Final = "emb_params"


def read_embedding(file: FileIdentity, encoder: str, width: int) -> torch.Tensor:
    """The vectors of a file, float32 [n, width].

    Args:
        encoder: the tensor's name in a file for several encoders, such as `clip_l`.
    Raises: ModelFileProblem: the file changed, is damaged, or its vectors are for another encoder.
    """
    tensors = read_header(Path(file.path)).tensors
    names = [name for name in (encoder, PLAIN_NAME) if name in tensors]
    if not names and len(tensors) > 1:
        raise problem(file.path, f"it holds no {encoder} and no {PLAIN_NAME}")
    name = names[0] if names else next(iter(tensors))
    shape = tensors[name].shape
    if len(shape) not in (1, 2) or shape[-1] != width:
        raise problem(
            file.path,
            f"its vectors {name} are of shape {list(shape)}; "
            f"this text encoder takes {width} wide ones",
        )
    if len(shape) == 2 and not 1 <= shape[0] <= MAX_VECTORS:
        raise problem(file.path, f"{shape[0]} vectors; 1 to {MAX_VECTORS} are possible")
    vectors = read_weights(file, (name,)).tensors[""]
    return vectors.to(torch.float32, copy=True).reshape(-1, width)


class Inversions:
    """The vectors of one batch's embeddings, under ids that follow the vocabulary's.

    Args:
        encoder: its name in files for several encoders.
        num_words: size of the vocabulary.
    """

    def __init__(self, encoder: str, width: int, num_words: int) -> None:
        self._encoder = encoder
        self._width = width
        self._num_words = num_words
        self._ids: dict[FileIdentity, range] = {}
        self._vectors: list[torch.Tensor] = []

    def ids(self, file: FileIdentity) -> range:
        """The ids of a file's vectors, read when first asked for. Raises: ModelFileProblem."""
        if file not in self._ids:
            vectors = read_embedding(file, self._encoder, self._width)
            first = self._num_words + sum(len(known) for known in self._vectors)
            self._vectors.append(vectors)
            self._ids[file] = range(first, first + len(vectors))
        return self._ids[file]

    def put(self, ids: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """`embedded` [chunks, 77, width] with the vectors where `ids` [chunks, 77] name them."""
        if not self._vectors:
            return embedded
        places = ids >= self._num_words
        vectors = torch.cat(self._vectors)[ids[places] - self._num_words]
        embedded[places.to(embedded.device)] = vectors.to(embedded)
        return embedded
