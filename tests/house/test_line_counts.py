"""What the docs say of the lines that passes take is what the counter counts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from house.sources import ROOT

SCRIPT = ROOT / "benchmarks" / "effective_lines.py"


def counted(*files: str) -> list[int]:
    command = [sys.executable, str(SCRIPT), *files]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [int(number) for number in re.findall(r"^  .*: (\d+)$", run.stdout, re.MULTILINE)]


def test_the_table_in_the_docs_is_what_is_counted() -> None:
    table = (ROOT / "docs" / "passes.md").read_text("utf-8")
    told = [
        int(n) for n in re.findall(r"^\| (?:Appr|Async|Both).*?\| (\d+) \|", table, re.MULTILINE)
    ]
    files = counted()
    assert told == [*files[:5], sum(files[5:])]


def test_blank_lines_comments_and_docstrings_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    lines = ['"""Doc.', "", 'More."""', "# why", 'X = """a', "", 'b"""', ""]
    lines += ["def f():", '    "doc"', "    return (", "        1", "    )"]
    path.write_text("\n".join(lines))
    assert counted(str(path)) == [3 + 1 + 3]
