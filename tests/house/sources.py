"""The project's own files as house tests see them: text, syntax tree, imports by full name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("server", "graph_import", "runtime", "cuda_ext", "web", "workflows")
OTHER_FOLDERS = ("tests", "benchmarks", "conformance", "training", ".ci")


@dataclass(frozen=True)
class Import:
    """One imported name, absolute: `from ..runtime.ids import X` is nodeloom.runtime.ids.X."""

    name: str
    line: int
    is_relative: bool

    def is_within(self, *packages: str) -> bool:
        """Whether the name is one of `packages` or lies inside one."""
        return any(self.name == p or self.name.startswith(f"{p}.") for p in packages)


@dataclass(frozen=True)
class Source:
    """A file by its path from the root of the checkout, with `/` between the parts."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def room(self) -> str:
        return self.path.split("/", 1)[0]

    @property
    def module(self) -> str:
        """The dotted name under which a room's file is imported."""
        name = self.path.removesuffix(".pyi").removesuffix(".py").removesuffix("/__init__")
        return "nodeloom." + name.replace("/", ".")

    @property
    def package(self) -> str:
        """What a relative import with one dot means here."""
        is_package = self.path.endswith("/__init__.py")
        return self.module if is_package else self.module.rpartition(".")[0]

    def imports(self) -> Iterator[Import]:
        """Every import in the file, also those inside functions and under TYPE_CHECKING."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, is_relative=False)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                for alias in node.names:
                    yield Import(f"{base}.{alias.name}", node.lineno, is_relative=node.level > 0)

    def _base(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        parts = self.package.split(".")
        above = parts[: len(parts) - (node.level - 1)]
        return ".".join([*above, node.module] if node.module else above)

    def at(self, line: int, what: str) -> str:
        """A finding, in the form that editors make a link of."""
        return f"{self.path}:{line}: {what}"


Checker = Callable[[Source], Iterator[str]]


def assert_clean(checker: Checker, sources: Iterable[Source]) -> None:
    """Fail with every finding of `checker`, one a line."""
    found = [finding for source in sources for finding in checker(source)]
    assert not found, "\n" + "\n".join(found)


def files(*folders: str, suffixes: tuple[str, ...]) -> Iterator[Source]:
    """The files with these suffixes below these folders of the checkout, in a fixed order."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts and path.is_file():
                yield Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))


def product_python() -> list[Source]:
    """The Python files of the rooms."""
    return list(files(*ROOMS, suffixes=(".py", ".pyi")))


def all_python() -> list[Source]:
    """The Python files of the rooms, the tests, the benchmarks, the training and CI."""
    return list(files(*ROOMS, *OTHER_FOLDERS, suffixes=(".py", ".pyi")))
