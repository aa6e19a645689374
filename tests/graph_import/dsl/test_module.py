"""Which workflow of a file is meant."""

from __future__ import annotations

import msgspec
import pytest
from nodeloom.graph_import.dsl import (
    CompositionError,
    describe,
    describe_program,
    run_source,
    workflow_in,
)
from nodeloom.graph_import.dsl.program import Program

from .flows import FILE, source

ONE = """
@workflow
def one(image: Image, amount: float = 0.5):
    return Node("ImageScaleBy")(image, upscale_method="area", scale_by=amount)
"""
TWO = ONE + ONE.replace("one", "two")


def test_the_only_one_needs_no_name() -> None:
    module = run_source(source(ONE), FILE)
    assert workflow_in(module, None).name == "one"
    assert workflow_in(module, "one") is workflow_in(module, None)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (TWO, None, "one, two; name one of them"),
        (TWO, "three", "one, two; none is called 'three'"),
        ("x = 1", None, "none; name one of them"),
    ],
)
def test_an_unclear_or_unknown_one_is_refused_with_all_names(
    text: str, name: str | None, words: str
) -> None:
    with pytest.raises(CompositionError, match=words) as caught:
        workflow_in(run_source(source(text), FILE), name)
    assert caught.value.place.file == FILE


def test_a_program_can_be_sent_and_describes_its_workflow() -> None:
    definition = workflow_in(run_source(source(ONE), FILE), None)
    program = definition.trace({})
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(program), type=Program)
    assert sent == program
    assert describe_program(sent) == describe(definition)
