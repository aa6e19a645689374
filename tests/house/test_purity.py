"""What product code must not do: reach outside its room's world, run data as code, hide errors."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest
from house.sources import Checker, Source, assert_clean, product_python

# Rooms that must be pure, and what they may not import.
BANNED_IMPORTS: dict[str, tuple[str, ...]] = {
    "nodeloom.graph_import": (
        *("torch", "diffusers", "transformers", "safetensors", "accelerate"),
        *("zmq", "aiohttp", "asyncio", "socket", "threading", "multiprocessing", "subprocess"),
        *("time", "datetime", "random", "os", "shutil", "tempfile", "glob", "sqlite3"),
        *("pathlib.Path", "pathlib.PosixPath"),
    ),
    "nodeloom.runtime.scheduler": (
        *("asyncio", "zmq", "time", "datetime", "os", "random", "threading", "logging", "torch"),
    ),
    # Everywhere: formats that run code when they are read.
    "nodeloom": ("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"),
}
RUNS_CODE = ("eval", "exec", "compile", "__import__")
IGNORE = re.compile(r"#\s*type:\s*ignore")
GOOD_IGNORE = re.compile(r"#\s*type:\s*ignore\[[a-z-]+(,\s*[a-z-]+)*\]\s*#\s*\w+")
NOQA = re.compile(r"#\s*noqa(?!: ?[A-Z]+\d+)")


def banned_imports(source: Source) -> Iterator[str]:
    for owner, banned in BANNED_IMPORTS.items():
        if source.module == owner or source.module.startswith(f"{owner}."):
            for item in source.imports():
                is_bare_pathlib = item.name == "pathlib" and "pathlib.Path" in banned
                if item.is_within(*banned) or is_bare_pathlib:
                    yield source.at(item.line, f"{owner} may not import {item.name}")


def banned_calls(source: Source) -> Iterator[str]:
    is_cli = source.path.startswith("server/cli/")
    banned = set(RUNS_CODE)
    if not is_cli:
        banned.add("print")
    if source.room == "graph_import":
        banned.add("open")
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in banned or called == "torch.load":
            yield source.at(node.lineno, f"{called}() has no place here")


def hidden_errors(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and is_broad(node) and does_nothing(node.body):
            yield source.at(node.lineno, "catches everything and says nothing")
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "suppress":
            yield from (
                source.at(node.lineno, "suppresses everything")
                for arg in node.args
                if ast.unparse(arg) in ("Exception", "BaseException")
            )


def is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(name) in ("Exception", "BaseException") for name in names)


def does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(statement, ast.Pass | ast.Continue)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def unexplained_ignores(source: Source) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if IGNORE.search(token.string) and not GOOD_IGNORE.search(token.string):
            yield source.at(token.start[0], "write `# type: ignore[code]  # reason`")
        if NOQA.search(token.string):
            yield source.at(token.start[0], "noqa without a code")


CHECKERS = [banned_imports, banned_calls, hidden_errors, unexplained_ignores]


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_product_code_is_pure(checker: Checker) -> None:
    assert_clean(checker, product_python())


BAD = [
    ("graph_import/x.py", "import torch.nn as nn"),
    ("graph_import/x.py", "def f():\n    import time"),
    ("graph_import/x.py", "from os import environ"),
    ("graph_import/x.py", "from pathlib import Path"),
    ("graph_import/x.py", "import pathlib"),
    ("graph_import/x.py", "text = open('a').read()"),
    ("runtime/scheduler/x.py", "from asyncio import sleep"),
    ("runtime/scheduler/x.py", "import logging"),
    ("runtime/scheduler/x.py", "import random"),
    ("server/x.py", "import pickle"),
    ("runtime/x.py", "from marshal import loads"),
    ("runtime/x.py", "eval('1')"),
    ("runtime/x.py", "exec(text)"),
    ("runtime/x.py", "torch.load(path)"),
    ("runtime/x.py", "print('here')"),
    ("runtime/x.py", "try:\n    f()\nexcept Exception:\n    pass"),
    ("runtime/x.py", "try:\n    f()\nexcept (OSError, BaseException) as e:\n    ..."),
    ("runtime/x.py", "for x in y:\n    try:\n        f()\n    except:\n        continue"),
    ("runtime/x.py", "with contextlib.suppress(Exception):\n    f()"),
    ("runtime/x.py", "x = 1  # type: ignore"),
    ("runtime/x.py", "x = 1  # type: ignore[arg-type]"),
    ("runtime/x.py", "x = 1  # noqa"),
]
GOOD = [
    ("graph_import/x.py", "from pathlib import PurePosixPath"),
    ("graph_import/x.py", "from .time import sigma"),
    ("runtime/x.py", "import time, os, random, threading"),
    ("runtime/x.py", "model.eval()\nsafetensors.torch.load(data)"),
    ("server/cli/run.py", "print('done')"),
    ("runtime/x.py", "try:\n    f()\nexcept OSError:\n    pass"),
    ("runtime/x.py", "try:\n    f()\nexcept Exception:\n    log.exception('failed')\n    raise"),
    ("runtime/x.py", "x = f()  # type: ignore[arg-type]  # diffusers has no types"),
    ("runtime/x.py", "class Failed(Exception): ...  # noqa: N818"),
    ("runtime/x.py", "text = '# type: ignore'"),
]


def findings(path: str, text: str) -> list[str]:
    source = Source(path, text)
    return [found for checker in CHECKERS for found in checker(source)]


@pytest.mark.parametrize(("path", "text"), BAD)
def test_the_checkers_find_what_is_bad(path: str, text: str) -> None:
    assert len(findings(path, text)) == 1


@pytest.mark.parametrize(("path", "text"), GOOD)
def test_the_checkers_let_pass_what_is_good(path: str, text: str) -> None:
    assert findings(path, text) == []
