"""Effective lines of code of the opt-in passes, to stand beside LegoDiffusion's Table 3.

Blank lines, comments and docstrings don't count. `docs/passes.md` holds what this prints; a test
compares them.

    python benchmarks/effective_lines.py [FILE ...]
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TECHNIQUES: Final = {
    "Approximate caching": (
        "graph_import/passes/approx_cache.py",
        "runtime/ops/approx_cache.py",
        "runtime/ops/kept_states.py",
    ),
    "Async LoRA loading": (
        "graph_import/passes/async_lora.py",
        "runtime/ops/async_lora.py",
    ),
    "Shared by both": (
        "graph_import/passes/edit.py",
        "graph_import/passes/options.py",
        "server/pass_options.py",
    ),
}
_LAYOUT: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)


def effective_lines(text: str) -> int:
    """Lines of Python that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(ast.parse(text)))


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if first is not None and is_text and isinstance(first.value.value, str):
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def main() -> int:
    """Print the count of each file and technique."""
    given = {"Given": tuple(sys.argv[1:])}
    techniques = given if len(sys.argv) > 1 else TECHNIQUES
    for technique, files in techniques.items():
        counts = {file: effective_lines((ROOT / file).read_text("utf-8")) for file in files}
        print(f"{technique}: {sum(counts.values())}")
        for file, count in counts.items():
            print(f"  {file}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
