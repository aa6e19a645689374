"""@workflow functions: traced anew for structural values only; inlined; never inside themselves."""

from __future__ import annotations

import pytest
from nodeloom.graph_import.dsl import CompositionError, Definition, Fault, workflow

from .flows import FILE, MODELS, bound, flow, refused, run_source, source, workflows_in

COUNTED = """
runs = []

@workflow
def counted(prompt: str = "a cat", steps: int = 2, twice: bool = False, seed: int = 0):
    runs.append(1)
    {models}
    words = text_encoder(prompt)
    latents = generator(seed, steps)
    for _ in range(steps):
        latents = step(denoiser(latents, words, words), latents)
    pictures = {{"first": vae.decode(latents)}}
    if structural(twice):
        pictures["second"] = Node("ImageInvert")(pictures["first"])
    return pictures
""".format(models=MODELS.strip().replace("\n", "\n    "))


@pytest.fixture
def counted() -> Definition:
    """A workflow that nothing has traced yet, and that counts its traces."""
    definition = flow(COUNTED)
    definition._traces = ()  # type: ignore[attr-defined]  # equal texts are one module
    runs(definition).clear()
    return definition


def runs(definition: Definition) -> list[int]:
    found = definition._function.__globals__["runs"]  # type: ignore[attr-defined]  # a @workflow
    assert isinstance(found, list)
    return found


def test_data_never_traces_again(counted: Definition) -> None:
    for seed in range(5):
        assert bound(counted, seed=seed, prompt=f"cat {seed}").values["seed"] == seed
    assert len(runs(counted)) == 1


def test_each_structural_value_is_traced_once(counted: Definition) -> None:
    for steps in (1, 2, 3, 2, 1, 3):
        graph = bound(counted, steps=steps).graph
        assert sum(node.op == "denoise" for node in graph.nodes) == steps
    assert len(runs(counted)) == 3


def test_several_structural_values_are_told_apart(counted: Definition) -> None:
    assert list(bound(counted, twice=True).outputs) == ["first", "second"]
    assert list(bound(counted, twice=False).outputs) == ["first"]
    assert list(bound(counted, twice=True, steps=1).outputs) == ["first", "second"]
    assert len(runs(counted)) == 3
    assert [use.name for use in counted.trace({}).structural] == ["steps", "twice"]


def test_a_value_may_take_every_call_of_a_model_away() -> None:
    text = """
    @workflow
    def sometimes(image: Image, times: int = 1):
        invert = Node("ImageInvert")
        for _ in range(times):
            image = invert(image)
        return image
    """
    assert len(bound(flow(text), image="cat.png", times=0).graph.nodes) == 2


def test_only_the_latest_traces_are_kept(counted: Definition) -> None:
    for steps in range(1, 19):
        bound(counted, steps=steps)
    assert len(runs(counted)) == 18
    bound(counted, steps=18)
    assert len(runs(counted)) == 18
    bound(counted, steps=1)
    assert len(runs(counted)) == 19


def test_a_structural_input_without_a_value_is_refused() -> None:
    text = """
    @workflow
    def endless(image: Image, steps: int):
        for _ in range(steps):
            image = Node("ImageInvert")(image)
        return image
    """
    refused(text, Fault.NEEDS_VALUE, 4, input="steps")
    assert len(bound(flow(text), image="cat.png", steps=3).prompt.nodes) == 5
    refused(text, Fault.NEEDS_VALUE, 4, input="steps")


def test_a_structural_value_has_a_bound() -> None:
    text = """
    @workflow
    def long(image: Image, steps: int = 10_001):
        for _ in range(steps):
            pass
        return Node("ImageInvert")(image)
    """
    refused(text, Fault.TOO_LARGE, 4, input="steps")


def test_a_program_has_a_bound() -> None:
    text = """
    @workflow
    def long(image: Image):
        invert = Node("ImageInvert")
        while True:
            image = invert(image)
    """
    refused(text, Fault.TOO_LARGE, 6)


INNER = """
@workflow
def inner(image: Image, times: int = 1):
    for _ in range(times):
        image = Node("ImageInvert")(image)
    return image
"""


def test_a_workflow_called_in_another_becomes_part_of_it() -> None:
    text = (
        INNER
        + """
@workflow
def outer(image: Image, times: int = 2):
    return inner(inner(image, 3), times)
"""
    )
    definition = workflows_in(run_source(source(text), FILE))["outer"]
    assert len(bound(definition, image="cat.png").graph.nodes) == 1 + 5 + 1
    assert [use.name for use in definition.trace({}).structural] == ["times"]


@pytest.mark.parametrize(
    ("call", "fault", "details"),
    [
        ("inner('cat.png')", Fault.WRONG_TYPE, {"expected": "IMAGE", "received": "STRING"}),
        ("inner(image, 1.5)", Fault.WRONG_TYPE, {"expected": "INT", "received": "FLOAT"}),
        ("inner()", Fault.MISSING_INPUT, {"input": "image"}),
        ("inner(image, size=3)", Fault.UNKNOWN_INPUT, {"input": "size"}),
        ("inner(image, image=image)", Fault.DUPLICATE_NAME, {"input": "image"}),
    ],
)
def test_a_call_of_a_workflow_is_typed(call: str, fault: Fault, details: dict[str, str]) -> None:
    text = (
        INNER
        + f"""
with Workflow("outer") as outer:
    image = outer.add_input("image", "IMAGE")
    outer.add_output({call}, "out")
"""
    )
    refused(text, fault, 10, **details)


def test_a_workflow_that_contains_itself_is_a_cycle() -> None:
    text = """
    @workflow
    def even(image: Image):
        return odd(image)

    @workflow
    def odd(image: Image):
        return even(image)

    with Workflow("both") as both:
        both.add_output(even(both.add_input("image", "IMAGE")), "out")
    """
    error = refused(text, Fault.CYCLE, 8)
    assert "even -> odd -> even" in error.message


def test_a_call_outside_says_how_to_run_it() -> None:
    error = refused(INNER + "inner('cat.png')", Fault.NO_SCOPE, 7)
    assert "nodeloom run" in error.message


@pytest.mark.parametrize(
    "signature",
    ["image", "image: bytes", "image: 'Nowhere'", "*image: Image", "image: int = 'one'"],
)
def test_parameters_have_types_that_a_caller_can_give(signature: str) -> None:
    text = f"@workflow\ndef typed({signature}):\n    return image"
    refused(text, Fault.WRONG_TYPE, 2)


@pytest.mark.parametrize("returned", ["None", "[image]", "3"])
def test_what_is_returned_must_be_pictures(returned: str) -> None:
    refused(f"@workflow\ndef odd(image: Image):\n    return {returned}", Fault.NO_OUTPUT, 2)


def test_a_latent_is_no_output() -> None:
    text = """
    @workflow
    def unfinished(image: Image):
        return Vae("dream.safetensors").encode(image)
    """
    refused(text, Fault.WRONG_TYPE, 2, expected="IMAGE", received="LATENT")


@pytest.mark.parametrize("raised", ["1 // 0", "exit(1)", "[][0]", "undefined"])
def test_what_the_text_raises_is_told_with_its_line(raised: str) -> None:
    refused(f"@workflow\ndef broken(image: Image):\n    {raised}\n", Fault.FAILED, 4)


def test_a_name_may_be_given() -> None:
    @workflow(name="renamed")
    def original(text: str = "a") -> None:
        """Never traced."""

    assert original.name == "renamed"
    with pytest.raises(CompositionError, match="outside a workflow"):
        original("b")
