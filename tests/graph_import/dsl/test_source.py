"""Python texts as modules."""

from __future__ import annotations

import hashlib
import sys
import traceback

import pytest
from nodeloom.graph_import.dsl import (
    CompositionError,
    Fault,
    ModuleSource,
    run_source,
    workflows_in,
)
from nodeloom.graph_import.dsl.source import SOURCE

from .flows import source


def test_a_module_knows_what_it_was_made_from() -> None:
    data = b"x = 1\n"
    module = run_source(data, "folder/my flow.py")
    assert module.x == 1
    assert module.__file__ == "folder/my flow.py"
    made_from = ModuleSource(file="folder/my flow.py", sha256=hashlib.sha256(data).hexdigest())
    assert getattr(module, SOURCE) == made_from
    assert sys.modules[module.__name__] is module


def test_equal_texts_run_once_and_others_beside_them() -> None:
    first = run_source(b"a = []", "a.py")
    assert run_source(b"a = []", "a.py") is first
    assert run_source(b"a = []  # changed", "a.py") is not first
    assert run_source(b"a = []", "b.py") is not first


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"x = 1\nx +\n", 2),
        (b"x = 1\n1 // 0\n", 2),
        (b"def f():\n    raise SystemExit(3)\n\nf()\n", 2),
        (b"\xff\xfe", 1),
        (b"x = '\x00'", 1),
    ],
)
def test_a_text_that_fails_is_told_with_its_line_and_forgotten(data: bytes, line: int) -> None:
    before = set(sys.modules)
    with pytest.raises(CompositionError) as caught:
        run_source(data, "broken.py", "/flows/broken.py")
    assert caught.value.fault is Fault.FAILED
    assert (caught.value.place.file, caught.value.place.line) == ("/flows/broken.py", line)
    assert {name for name in set(sys.modules) - before if "broken" in name} == set()


def test_tracebacks_show_the_text() -> None:
    module = run_source(b"def fail():\n    raise ValueError('here')\n", "shown.py")
    with pytest.raises(ValueError, match="here") as caught:
        module.fail()
    assert "raise ValueError('here')" in "".join(traceback.format_exception(caught.value))


def test_a_file_has_the_workflows_that_it_defines() -> None:
    inner = run_source(source("@workflow\ndef shared(image: Image):\n    return image\n"), "in.py")
    text = f"""
    import sys
    shared = sys.modules[{inner.__name__!r}].shared

    @workflow(name="two")
    def one(image: Image):
        return shared(image)

    alias = one
    with Workflow("three") as flow:
        flow.add_output(shared(flow.add_input("image", "IMAGE")), "out")
    """
    assert list(workflows_in(run_source(source(text), "out.py"))) == ["two", "three"]


def test_two_workflows_of_a_name_are_refused() -> None:
    text = """
    @workflow
    def one(image: Image):
        return image

    @workflow(name="one")
    def two(image: Image):
        return image
    """
    with pytest.raises(CompositionError) as caught:
        workflows_in(run_source(source(text), "twice.py"))
    assert (caught.value.fault, caught.value.place.line) == (Fault.DUPLICATE_NAME, 6)
