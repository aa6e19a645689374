"""The walls: files of 400 lines, functions of 60. Past them there are two nouns, or two verbs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house.sources import (
    OTHER_FOLDERS,
    ROOMS,
    Source,
    all_python,
    assert_clean,
    files,
)

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
SUFFIXES = (".py", ".pyi", ".js", ".hpp", ".cpp", ".css", ".html")


def long_files(source: Source) -> Iterator[str]:
    num_lines = len(source.text.splitlines())
    if num_lines > MAX_FILE_LINES:
        yield source.at(1, f"{num_lines} lines: split it by noun")


def long_functions(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if num_lines > MAX_FUNCTION_LINES:
                yield source.at(node.lineno, f"{node.name}() has {num_lines} lines")


def test_no_file_is_beyond_the_wall() -> None:
    assert_clean(long_files, files(*ROOMS, *OTHER_FOLDERS, suffixes=SUFFIXES))


def test_no_function_is_beyond_the_wall() -> None:
    assert_clean(long_functions, all_python())


def test_the_checker_finds_a_file_one_line_too_long() -> None:
    assert list(long_files(Source("runtime/x.py", "\n" * MAX_FILE_LINES))) == []
    assert len(list(long_files(Source("runtime/x.py", "\n" * (MAX_FILE_LINES + 1))))) == 1


def test_the_checker_finds_a_function_one_line_too_long() -> None:
    for keyword in ("def", "async def"):
        full = f"{keyword} f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 1)
        assert list(long_functions(Source("runtime/x.py", full))) == []
        found = list(long_functions(Source("runtime/x.py", full + "    x = 2\n")))
        assert found == [f"runtime/x.py:1: f() has {MAX_FUNCTION_LINES + 1} lines"]
