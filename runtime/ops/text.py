"""The body of the node that turns a text into conditioning."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from ...graph_import.handles import FileIdentity
from ...graph_import.prompt_text import embedding_names, without_commas
from ..errors import NodeFailed
from ..values import Conditioning
from .arguments import argument, loaded
from .base import OpCall, OpContext, OpResult

log = logging.getLogger(__name__)


def text_encode(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """text, embedding_N -> CONDITIONING. Texts of a batch share forwards, but for strict mode.

    Each `embedding_N` is a JSON list: the name in the text, and its file's path, size and time.
    """
    model = loaded(context)
    texts = [_text(call) for call in calls]
    context.check_cancelled()
    if context.is_strict:
        given = []
        for text in texts:
            context.check_cancelled()
            given.append(model.execute(**text))
    else:
        given = model.execute_batch(texts)
    return [OpResult(outputs=(cast(Conditioning, one["conditioning"]),)) for one in given]


def _text(call: OpCall) -> Mapping[str, object]:
    text = argument(call, "text", str)
    files = dict(
        _embedding(argument(call, name, str)) for name in call.args if name.startswith("embedding_")
    )
    for name in embedding_names(text):
        if name not in files and without_commas(name)[0] not in files:
            log.warning("embedding_unknown", extra={"name_in_text": name, "node": call.node_id})
    return {"text": text, "embeddings": files}


def _embedding(entry: str) -> tuple[str, FileIdentity]:
    try:
        name, path, size_bytes, mtime_ns = msgspec.json.decode(
            entry, type=tuple[str, str, int, int]
        )
    except msgspec.MsgspecError as error:
        raise NodeFailed(f"an embedding is described wrongly: {error}") from error
    return name, FileIdentity(path=path, size_bytes=size_bytes, mtime_ns=mtime_ns)
