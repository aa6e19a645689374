"""Conversion of published workflow files, compared with what ComfyUI's own page makes of them.

    python -m conformance.corpus --packages .corpus [--goldens ../shared/goldens]

The files come with the template packages of `PACKAGES`; the prompts to compare with are recorded
(two versions of the page; `index.json` says which one counts for a file). The last line is JSON.
Exit status 1: fewer than 99 % of the files are equal, or one differs that
`corpus_exceptions.toml` doesn't list.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from nodeloom.graph_import.workflow_file import NodeTable, convert, parse_text

from .case import exceptions_at, goldens_folder

LIMIT: Final = 0.99
EXCEPTIONS: Final = Path(__file__).with_name("corpus_exceptions.toml")
HASHED_FROM: Final = 40  # characters; longer texts are recorded by their hash
# Inputs that only the page uses.
PAGE_INPUTS: Final[Mapping[str, frozenset[str]]] = {
    "PreviewAny": frozenset({"preview", "previewMode"}),
    "LoadImageOutput": frozenset({"refresh"}),
    "Load3D": frozenset({"image", "upload 3d model", "upload extra resources", "clear"}),
    "Preview3D": frozenset({"image"}),
    "SaveGLB": frozenset({"image"}),
    **{
        name: frozenset({"audioUI"})
        for name in ("LoadAudio", "PreviewAudio", "SaveAudio", "SaveAudioMP3", "SaveAudioOpus")
    },
}

Prompt = dict[str, Any]


def main() -> int:
    """Convert and compare every file; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m conformance.corpus", description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="where the packages lie")
    parser.add_argument("--goldens", type=Path, default=goldens_folder())
    args = parser.parse_args()
    recorded = args.goldens / "workflows"
    if not recorded.is_dir() or not args.packages.is_dir():
        print(f"skipped: {recorded} or {args.packages} is missing", file=sys.stderr)
        print(json.dumps({"skipped": True}))
        return 0
    started = time.monotonic()
    different = {name: text for name, text in differences(recorded, args.packages) if text}
    reasons = exceptions_at(EXCEPTIONS)
    total = sum(1 for _ in rows(recorded))
    for name, text in sorted(different.items()):
        print(f"{name}: {text}\n    {reasons.get(name, 'NOT LISTED')}")
    share = 1.0 - len(different) / total
    unlisted = sorted(different.keys() - reasons.keys())
    summary = {
        "files": total,
        "equal": total - len(different),
        "share": round(share, 5),
        "listed": len(different) - len(unlisted),
        "unlisted": unlisted,
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(summary))
    return 1 if unlisted or share < LIMIT else 0


def rows(recorded: Path) -> Iterator[dict[str, Any]]:
    """The files, each once."""
    index = json.loads((recorded / "index.json").read_text("utf-8"))
    return (row for row in index["rows"] if not row.get("same_as"))


def differences(recorded: Path, packages: Path) -> Iterator[tuple[str, str]]:
    """Per file, what is different first; an empty text where nothing is."""
    with gzip.open(recorded / "interface.json.gz") as file:
        object_info = json.load(file)
    table = NodeTable(object_info)
    with zipfile.ZipFile(recorded / "prompts.zip") as prompts:
        for row in rows(recorded):
            content = (packages / row["file"]).read_bytes()
            if hashlib.sha256(content).hexdigest() != row["sha256"]:
                yield row["name"], "the file is of another version of its package"
                continue
            ours = convert(parse_text(content), table).prompt
            golden = json.loads(prompts.read(f"{row['primary']}/{row['name']}.json"))
            yield row["name"], _difference(ours, _renamed(golden, row), object_info)


def _difference(ours: Prompt, golden: Prompt, object_info: Mapping[str, Any]) -> str:
    """What the part of both that reaches an output differs in."""
    mine, theirs = _needed(ours, object_info), _needed(golden, object_info)
    for key in sorted(mine.keys() | theirs.keys()):
        one, other = mine.get(key), theirs.get(key)
        if one is None or other is None:
            return f"{key} {(one or other or {}).get('class_type')} is only in " + (
                "the recorded one" if one is None else "ours"
            )
        if one["class_type"] != other["class_type"]:
            return f"{key}: {one['class_type']} is not {other['class_type']}"
        a, b = _inputs(one), _inputs(other)
        for name in sorted(a.keys() | b.keys()):
            if not _is_equal(a.get(name, "(none)"), b.get(name, "(none)")):
                return (
                    f"{key} {one['class_type']}.{name}: {a.get(name, '(none)')!r} is not "
                    f"{b.get(name, '(none)')!r}"
                )[:300]
    return ""


def _needed(prompt: Prompt, object_info: Mapping[str, Any]) -> Prompt:
    """The known nodes that output nodes read, directly or not."""
    known = {key: node for key, node in prompt.items() if node.get("class_type") in object_info}
    waiting = [k for k, n in known.items() if object_info[n["class_type"]].get("output_node")]
    found: Prompt = {}
    while waiting:
        key = waiting.pop()
        if key in found or key not in known:
            continue
        found[key] = known[key]
        waiting += [v[0] for v in known[key].get("inputs", {}).values() if _is_link(v)]
    return found


def _inputs(node: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that count, long texts by their hashes."""
    class_type = node["class_type"]
    inputs = node.get("inputs", {})
    if class_type == "CustomCombo":
        inputs = {name: value for name, value in inputs.items() if name == "choice"}
    left_out = PAGE_INPUTS.get(class_type, frozenset())
    return {name: _hashed(value) for name, value in inputs.items() if name not in left_out}


def _hashed(value: Any) -> Any:
    if isinstance(value, str) and len(value) > HASHED_FROM and not value.startswith("sha256:"):
        return "sha256:" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    if isinstance(value, list):
        return [_hashed(part) for part in value]
    if isinstance(value, dict):
        return {name: _hashed(part) for name, part in value.items()}
    return value


def _is_equal(one: Any, other: Any) -> bool:
    """As JSON, 1 and 1.0 being equal, and true and 1 not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(one[k], other[k]) for k in one)
    return bool(one == other)


def _renamed(golden: Prompt, row: Mapping[str, Any]) -> Prompt:
    """The recorded prompt under the file's ids."""
    names = row.get("id_map") if row["primary"] == "1.58.1" else None
    if not isinstance(names, dict):
        return golden

    def value_of(value: Any) -> Any:
        return [names.get(value[0], value[0]), value[1]] if _is_link(value) else value

    return {
        names.get(key, key): {
            **node,
            "inputs": {name: value_of(value) for name, value in node.get("inputs", {}).items()},
        }
        for key, node in golden.items()
    }


def _is_link(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


if __name__ == "__main__":
    sys.exit(main())
