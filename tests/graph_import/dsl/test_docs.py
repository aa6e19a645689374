"""docs/dsl.md is true: its examples bind, and its mistakes are told in the words it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nodeloom.graph_import.dsl import CompositionError, run_source, workflows_in

from ..known_files import PICTURE
from .flows import FILE, bound

PAGE = (Path(__file__).parents[3] / "docs" / "dsl.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n(?:```text\n(.*?)\n```)?", PAGE, re.DOTALL)
EXAMPLES = [text for text, error in BLOCKS if not error]
MISTAKES = [(text, error) for text, error in BLOCKS if error]
GIVEN = {"prompt": "a loom", "hint": PICTURE, "image": PICTURE}


def test_the_page_has_examples_and_mistakes() -> None:
    assert (len(EXAMPLES), len(MISTAKES)) == (3, 2)


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_binds(text: str) -> None:
    (definition,) = workflows_in(run_source(text.encode(), FILE)).values()
    values = {item.name: GIVEN[item.name] for item in definition.inputs if item.is_required}
    assert bound(definition, **values).graph.pending == ()


@pytest.mark.parametrize(("text", "error"), MISTAKES)
def test_a_mistake_is_told_in_these_words(text: str, error: str) -> None:
    (definition,) = workflows_in(run_source(text.encode(), FILE)).values()
    with pytest.raises(CompositionError) as caught:
        definition.trace({})
    assert str(caught.value) == error
