"""The bodies of the nodes that turn texts into conditioning."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec

from ...graph_import.handles import FileIdentity
from ...graph_import.nodes.ops_encoding import SIZES
from ...graph_import.prompt_text import embedding_names, without_commas
from ..errors import NodeFailed
from ..values import CondDetails, Conditioning
from .arguments import argument, loaded, number
from .base import OpCall, OpContext, OpResult

log = logging.getLogger(__name__)

TEXT: Final = "text"
OWN_TEXT: Final = "text_"  # before the name of an encoder
# Arguments, and what denoisers call them.
NUMBERS: Final[Mapping[str, str]] = {
    **{name: name for name in SIZES},
    "ascore": "aesthetic_score",
}


def text_encode(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """text, embedding_N -> CONDITIONING. Texts of a batch share forwards, but for strict mode.

    Each `embedding_N` is a JSON list: the name in the text, and its file's path, size and time.
    """
    given = _encoded(context, [_each(call) for call in calls])
    return [OpResult(outputs=(one,)) for one in given]


def text_encode_each(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """text, text_ENCODER, embedding_N, sizes, ascore, guidance -> CONDITIONING.

    An encoder without a text of its own gets `text`; with `empty_padding` `none`, empty texts are
    left out.
    """
    given = _encoded(context, [_each(call) for call in calls])
    return [
        OpResult(outputs=(_told_more(call, one),)) for call, one in zip(calls, given, strict=True)
    ]


def _each(call: OpCall) -> Mapping[str, object]:
    texts = {
        name.removeprefix(OWN_TEXT): argument(call, name, str)
        for name in call.args
        if name.startswith(OWN_TEXT)
    }
    names = [TEXT, *(OWN_TEXT + encoder for encoder in texts)]
    one: dict[str, object] = {
        "text": argument(call, TEXT, str),
        "embeddings": _embeddings(call, *names),
    }
    if texts:
        one["texts"] = texts
        one["is_empty_left_out"] = call.args.get("empty_padding") == "none"
    return one


def _told_more(call: OpCall, conditioning: Conditioning) -> Conditioning:
    """The conditioning with the numbers of the call on every entry."""
    numbers = tuple((NUMBERS[name], number(call, name)) for name in NUMBERS if name in call.args)
    guidance = number(call, "guidance") if "guidance" in call.args else None
    more = CondDetails(guidance=guidance, numbers=numbers)
    entries = tuple(msgspec.structs.replace(one, more=more) for one in conditioning.entries)
    return Conditioning(entries=entries)


def _encoded(context: OpContext, texts: Sequence[Mapping[str, object]]) -> list[Conditioning]:
    model = loaded(context)
    context.check_cancelled()
    if not context.is_strict:
        given = model.execute_batch(texts)
    else:
        given = []
        for text in texts:
            context.check_cancelled()
            given.append(model.execute(**text))
    return [cast(Conditioning, one["conditioning"]) for one in given]


def _embeddings(call: OpCall, *names: str) -> dict[str, FileIdentity]:
    """The files of the embeddings in the texts of these arguments, by name."""
    files = dict(
        _embedding(argument(call, name, str)) for name in call.args if name.startswith("embedding_")
    )
    for written in (one for name in names for one in embedding_names(argument(call, name, str))):
        if written not in files and without_commas(written)[0] not in files:
            log.warning("embedding_unknown", extra={"name_in_text": written, "node": call.node_id})
    return files


def _embedding(entry: str) -> tuple[str, FileIdentity]:
    try:
        name, path, size_bytes, mtime_ns = msgspec.json.decode(
            entry, type=tuple[str, str, int, int]
        )
    except msgspec.MsgspecError as error:
        raise NodeFailed(f"an embedding is described wrongly: {error}") from error
    return name, FileIdentity(path=path, size_bytes=size_bytes, mtime_ns=mtime_ns)
