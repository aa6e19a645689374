"""A process of its own that runs one user's pattern: `python -I -S regex_child.py < question`.

A pattern can take for ever and can't be interrupted from within, so the parent ends the process.
The question and the answer are JSON texts. Nothing else of the project is imported here.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from typing import Any

MAX_MEMORY_BYTES = 512 * 1024 * 1024
MAX_CPU_S = 4


def answer(question: dict[str, Any]) -> Any:
    """What the pattern gives; a pattern that is none matches nothing, as in ComfyUI."""
    flags = (
        (re.IGNORECASE if question["case_insensitive"] else 0)
        | (re.MULTILINE if question["multiline"] else 0)
        | (re.DOTALL if question["dotall"] else 0)
    )
    text = question["string"]
    if question["op"] == "regex_replace":
        return re.sub(
            question["regex_pattern"],
            question["replace"],
            text,
            count=question["count"],
            flags=flags,
        )
    is_match = question["op"] == "regex_match"
    try:
        pattern = re.compile(question["regex_pattern"], flags)
    except re.error:
        return False if is_match else ""
    if is_match:
        return pattern.search(text) is not None
    return extracted(pattern, text, question["mode"], question["group_index"])


def extracted(pattern: re.Pattern[str], text: str, mode: str, index: int) -> str:
    """The first match or all, whole or one group of each, a line each.

    All whole matches of a pattern with groups are given by their first group.
    """
    if mode == "First Match":
        match = pattern.search(text)
        return match.group(0) if match else ""
    if mode == "All Matches":
        first = 1 if pattern.groups else 0
        return "\n".join(match.group(first) or "" for match in pattern.finditer(text))
    if index > pattern.groups:
        return ""
    if mode == "First Group":
        match = pattern.search(text)
        return (match.group(index) or "") if match else ""
    return "\n".join(match.group(index) or "" for match in pattern.finditer(text))


def main() -> None:
    """Read the question, write the answer."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
    try:
        given = {"value": answer(json.load(sys.stdin))}
    except (re.error, IndexError) as problem:
        given = {"problem": f"the pattern or its replacement makes no sense: {problem}"}
    except (MemoryError, RecursionError, OverflowError):
        given = {"problem": "the pattern needs too much memory"}
    json.dump(given, sys.stdout)


if __name__ == "__main__":
    main()
