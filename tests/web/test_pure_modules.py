"""Runs the page's pure modules under Node's own test runner (`*.test.mjs` beside this file)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

LIMIT_S = 120


def test_the_modules_without_a_page_pass_their_own_tests() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here: the page's pure modules are not tested")
    tests = sorted(str(path) for path in Path(__file__).parent.glob("*.test.mjs"))
    assert tests
    # The modules are served as .js; Node takes them for modules only when told.
    command = [node, "--experimental-default-type=module", "--no-warnings", "--test", *tests]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
