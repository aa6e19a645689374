"""Workflow texts for tests: run as files, bound to values where there is a file of each kind."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.comfy.validate import validate
from nodeloom.graph_import.dsl import (
    CompositionError,
    Definition,
    Fault,
    Invocation,
    bind,
    run_source,
    workflows_in,
)
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.verify import verify

from ..known_files import KnownFiles, every_file, identity, sd15

FILE = "flow.py"
IMPORTS = "from nodeloom.graph_import.dsl import *\n"  # line 1 of every text here
MODELS = """
text_encoder, denoiser = TextEncoder("dream.safetensors"), Denoiser("dream.safetensors")
vae, step = Vae("dream.safetensors"), SamplerStep()
generator = LatentsGenerator(denoiser)
"""


def files() -> KnownFiles:
    known = every_file()
    known.files["user_models", FILE] = identity(FILE)
    for encoder in ("clip_l", "clip_g", "t5xxl"):
        info = sd15(encoder, frozenset({Role.TEXT_ENCODER}))
        known.parts["text_encoders", encoder] = msgspec.structs.replace(info, encoders=(encoder,))
    return known


def source(text: str) -> bytes:
    """The bytes of a workflow file; `text` begins on its second line."""
    return (IMPORTS + textwrap.dedent(text).lstrip("\n")).encode()


def flow(text: str) -> Definition:
    """The only workflow that a text defines."""
    (definition,) = workflows_in(run_source(source(text), FILE)).values()
    return definition


def bound(definition: Definition, **values: object) -> Invocation:
    """The workflow bound to values, its Graph verified."""
    invocation = bind(definition, values, Registry(), files())
    verify(invocation.graph)
    return invocation


def refused(text: str, fault: Fault, line: int, **details: object) -> CompositionError:
    """The error that a text raises while it is run or traced with its defaults."""
    with pytest.raises(CompositionError) as caught:
        flow(text).trace({})
    error = caught.value
    assert (error.fault, error.place.file, error.place.line) == (fault, FILE, line), error.message
    assert {name: error.details[name] for name in details} == details
    return error


def contents(graph: Graph) -> Counter[str]:
    """What a Graph computes, whatever its nodes are called."""
    return Counter(node.signature for node in graph.nodes)


def of_comfyui(prompt: Mapping[str, Any]) -> Graph:
    """The Graph of a prompt in API format."""
    checked = validate(prompt, Registry(), files())
    assert checked.problems == ()
    return import_prompt(checked.prompt, checked.roots, Registry(), files())
