from __future__ import annotations

import pytest
from nodeloom.graph_import.types import TypeSpec, connects, takes_literals


@pytest.mark.parametrize(
    ("received", "declared", "fits"),
    [
        ("IMAGE", "IMAGE", True),
        ("IMAGE", "MASK", False),
        ("*", "IMAGE", True),
        ("IMAGE", "*", True),
        ("COMFY_MATCHTYPE_V3", "IMAGE", True),
        ("IMAGE", "COMFY_MATCHTYPE_V3", True),
        ("INT,STRING", "INT", True),
        ("INT", "FLOAT, INT", True),
        ("INT", "INTEGER", False),
        ("STRING", "INT,FLOAT", False),
        ("STRING", "INT,*", True),
        (["a", "b"], "COMBO", True),
        (["a", "b"], ["a", "b"], True),
        (["a", "b"], ["b", "a"], False),
        (["a", "b"], "STRING", False),
        ("STRING", ["a", "b"], False),
        ("*", ["a", "b"], True),
    ],
)
def test_what_may_feed_what(received: TypeSpec, declared: TypeSpec, fits: bool) -> None:
    assert connects(received, declared) is fits


@pytest.mark.parametrize("type_", ["INT", "FLOAT", "STRING", "BOOLEAN", "COMBO", "*", "MASK,INT"])
def test_scalars_may_be_given_in_the_prompt(type_: str) -> None:
    assert takes_literals(type_)


@pytest.mark.parametrize("type_", ["IMAGE", "MODEL", "LATENT,IMAGE", "SAMPLER_STATE"])
def test_models_and_tensors_only_come_over_links(type_: str) -> None:
    assert not takes_literals(type_)
