"""What makes no sense is an error where it is written: the line, and both types."""

from __future__ import annotations

import pytest
from nodeloom.graph_import.dsl import (
    CompositionError,
    Denoiser,
    Fault,
    LoRA,
    Node,
    SamplerStep,
    Workflow,
)

from .flows import MODELS, bound, flow, refused

SCOPE = """
with Workflow("flow") as flow:
    prompt, seed = flow.add_input("prompt", str, "a cat"), flow.add_input("seed", int, 1)
    text_encoder, vae = TextEncoder("dream.safetensors"), Vae("dream.safetensors")
    denoiser, step = Denoiser("dream.safetensors"), SamplerStep()
    generator = LatentsGenerator(denoiser)
    words = text_encoder(prompt)
    latents = generator(seed, 1)
    latents = step(denoiser(latents, words, words), latents)
    image = vae.decode(latents)
    {here}
    flow.add_output(image, "out")
"""
HERE = 11


def test_the_scope_itself_is_sound() -> None:
    assert bound(flow(SCOPE.format(here="pass"))).outputs == {"out": "output-out"}


@pytest.mark.parametrize(
    ("here", "expected", "received"),
    [
        ("vae.encode(words)", "IMAGE", "CONDITIONING"),
        ("vae.decode(image)", "LATENT", "IMAGE"),
        ("text_encoder(seed)", "STRING", "INT"),
        ("text_encoder(3)", "STRING", "INT"),
        ("text_encoder(True)", "STRING", "BOOLEAN"),
        ("text_encoder(text=['a'])", "STRING", "list"),
        ("Vae(['a']).decode(latents)", "COMBO", "list"),
        ("denoiser.add_patch(LoRA('a', 'b')); denoiser(latents, words, words)", "FLOAT", "STRING"),
        ("generator(prompt, 3)", "INT", "STRING"),
        ("generator(True, 3)", "INT", "BOOLEAN"),
        ("generator(1.0, 3)", "INT", "FLOAT"),
        ("denoiser(words, words, words)", "SAMPLER_STATE", "CONDITIONING"),
        ("denoiser(latents, words, words, image)", "RESIDUALS", "IMAGE"),
        ("denoiser(latents, words, words, cfg=prompt)", "FLOAT", "STRING"),
        ("step(latents, latents)", "ESTIMATE", "SAMPLER_STATE"),
        ("flow.add_output(words, 'words')", "IMAGE", "CONDITIONING"),
        ("denoiser.add_patch('detail.safetensors')", "LoRA", "str"),
        ("Node('ImageScale')(words, 'area', 64, 64, 'center')", "IMAGE", "CONDITIONING"),
        ("flow.add_input('size', int, 0.5)", "INT", "FLOAT"),
    ],
)
def test_a_wrong_type_is_refused_with_both_types(here: str, expected: str, received: str) -> None:
    error = refused(
        SCOPE.format(here=here), Fault.WRONG_TYPE, HERE, expected=expected, received=received
    )
    assert error.message.startswith(f"flow.py:{HERE}: ")
    assert expected in error.message
    assert received in error.message
    assert error.code == "composition_error"


@pytest.mark.parametrize(
    "here",
    [
        "generator(-1, 3)",
        "generator(1, 0)",
        "denoiser(latents, words, words, cfg=101.0)",
        "Node('ImageScale')(image, 'cubic', 64, 64, 'center')",
        "LatentsGenerator(denoiser, sampler='eiler')(1, 3)",
        "vae(image, 'both')",
        "denoiser.rm_patch(LoRA('detail.safetensors'))",
        "flow.add_output(image, 'no/slash')",
        "flow.add_input('', int)",
        "flow.add_input('size', int, 10**30)",
        "flow.add_input('size', int, -(2**63) - 1)",
        "flow.add_input('size', float, float('nan'))",
        "flow.add_input('size', float, float('-inf'))",
        r"flow.add_input('size', str, '\ud800')",
        r"text_encoder('\ud800')",
    ],
)
def test_a_value_that_no_run_could_take_is_refused(here: str) -> None:
    refused(SCOPE.format(here=here), Fault.WRONG_VALUE, HERE)


@pytest.mark.parametrize(
    ("here", "missing"),
    [
        ("Node('ImageScale')(image, 'area', 64, 64)", "crop"),
        ("Node('VAEDecode')(vae=None, samples=None) if False else Node('VAEDecode')()", "samples"),
    ],
)
def test_a_missing_input_is_named(here: str, missing: str) -> None:
    refused(SCOPE.format(here=here), Fault.MISSING_INPUT, HERE, input=missing)


def test_a_model_needs_its_weights_named_once() -> None:
    for call in ("Vae()", "Denoiser('a', file='b')"):
        refused(SCOPE.format(here=call), Fault.MISSING_INPUT, HERE)


@pytest.mark.parametrize(
    "here",
    ["Node('VAEDecode')(image=image)", "Node('ImageInvert')(image, image)", "Node('NoSuchNode')"],
)
def test_an_unknown_input_is_refused(here: str) -> None:
    refused(SCOPE.format(here=here), Fault.UNKNOWN_INPUT, HERE)


def test_more_controlnets_than_a_denoiser_takes_are_refused() -> None:
    here = "denoiser(latents, words, words, [image] * 9)"
    refused(SCOPE.format(here=here), Fault.UNKNOWN_INPUT, HERE)


@pytest.mark.parametrize(
    "here",
    [
        "flow.add_input('seed', int)",
        "flow.add_output(image, 'out')\n    flow.add_output(image, 'out')",
        "Node('ImageInvert')(image, image=image)",
    ],
)
def test_a_name_that_is_taken_is_refused(here: str) -> None:
    line = HERE + here.count("\n")
    refused(SCOPE.format(here=here), Fault.DUPLICATE_NAME, line)


def test_a_value_of_another_workflow_is_refused_with_where_it_is_from() -> None:
    text = """
    with Workflow("first") as first:
        picture = first.add_input("picture", "IMAGE")
        first.add_output(Node("ImageInvert")(picture), "out")
    with Workflow("second") as second:
        second.add_output(Node("ImageInvert")(picture), "out")
    """
    error = refused(text, Fault.FOREIGN_VALUE, 6, expected="IMAGE", received="IMAGE")
    assert "flow.py:3" in error.message


def test_a_file_that_another_workflow_names_is_foreign_too() -> None:
    text = """
    with Workflow("first") as first:
        file = first.add_input("file", str)
        vae = Vae(file)
        first.add_output(vae.decode(vae.encode(first.add_input("image", "IMAGE"))), "out")
    with Workflow("second") as second:
        name, picture = second.add_input("file", str), second.add_input("image", "IMAGE")
        own = Vae(name)
        second.add_output(own.decode(vae.encode(picture)), "out")
    """
    refused(text, Fault.FOREIGN_VALUE, 9, expected="COMBO", received="STRING")


@pytest.mark.parametrize("made", ["Vae('other.safetensors')", "LoRA('a')", "Node('SaveImage')"])
def test_a_model_that_is_never_called_is_refused_where_it_is_made(made: str) -> None:
    refused(SCOPE.format(here=f"unused = {made}"), Fault.UNUSED_MODEL, HERE)


def test_a_denoiser_that_only_a_generator_knows_is_not_called() -> None:
    here = "LatentsGenerator(Denoiser('other.safetensors'))(1, 3)"
    refused(SCOPE.format(here=here), Fault.UNUSED_MODEL, HERE)


def test_a_workflow_without_output_is_refused() -> None:
    refused("with Workflow('flow') as flow:\n    pass", Fault.NO_OUTPUT, 2)


def test_a_workflow_inside_a_workflow_is_refused() -> None:
    text = """
    with Workflow("outer"):
        with Workflow("inner"):
            pass
    """
    refused(text, Fault.NO_SCOPE, 3)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("file=['a', 'b']", Fault.MISSING_INPUT),
        ("file=['a', 'b', 'c'], type='flux'", Fault.WRONG_VALUE),
        ("file=['a', 'b', 'c', 'd'], type='sd3'", Fault.WRONG_VALUE),
        ("file=[]", Fault.MISSING_INPUT),
        ("'dream.safetensors', file=['a']", Fault.MISSING_INPUT),
    ],
)
def test_files_that_make_no_text_encoder_are_refused(given: str, fault: Fault) -> None:
    refused(f"TextEncoder({given})", fault, 2)


def test_a_call_outside_of_workflows_is_refused() -> None:
    refused("TextEncoder('dream.safetensors')('a cat')", Fault.NO_SCOPE, 2)


@pytest.mark.parametrize(
    "after",
    ["flow.add_input('late', int)", "flow.add_output(image, 'late')", "with flow: pass"],
)
def test_a_written_workflow_stays_as_it_is(after: str) -> None:
    text = SCOPE.format(here="pass") + after
    refused(text, Fault.NO_SCOPE, 13)


def test_a_failed_block_leaves_no_scope_behind() -> None:
    with pytest.raises(ZeroDivisionError), Workflow("broken"):
        raise ZeroDivisionError
    with pytest.raises(CompositionError, match="was not written to its end"):
        _ = Workflow("unwritten").inputs
    assert Denoiser("made outside").label == "Denoiser"


def test_patches_count_from_where_they_are_attached() -> None:
    text = """
    @workflow
    def patched(steps: int = 3):
        {models}
        words = text_encoder("a cat")
        lora = LoRA("my-loras.safetensors")
        latents = generator(1, steps)
        for index in range(steps):
            if index == 1:
                denoiser.add_patch(lora)
            if index == 2:
                denoiser.rm_patch(lora)
            latents = step(denoiser(latents, words, words), latents)
        return vae.decode(latents)
    """.replace("{models}", MODELS.strip().replace("\n", "\n        "))
    nodes = [n for n in bound(flow(text)).graph.nodes if n.op == "denoise"]
    assert [len(n.model.patches) for n in nodes if n.model is not None] == [0, 1, 0]


def test_patches_that_a_workflow_attaches_are_its_own() -> None:
    denoiser, lora = Denoiser("dream.safetensors"), LoRA("my-loras.safetensors")
    with Workflow("flow") as patched:
        picture = patched.add_input("picture", "IMAGE")
        patched.add_output(Node("ImageInvert")(picture), "out")
        denoiser.add_patch(lora)
        assert denoiser._attached() == [lora]
    assert denoiser._attached() == []
    denoiser.add_patch(lora)
    assert denoiser._attached() == [lora]


def test_a_sampler_step_needs_no_workflow_to_be_made() -> None:
    assert SamplerStep().label == "SamplerStep"
