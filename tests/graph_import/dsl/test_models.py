"""Sampling step by step: what the lowering of the loop refuses, and what it is lenient about."""

from __future__ import annotations

import pytest
from nodeloom.graph_import.dsl import InvocationProblem, InvocationRejected
from nodeloom.graph_import.handles import Role

from ..known_files import PICTURE, sd15
from .flows import MODELS, Registry, bind, bound, contents, files, flow

LOOP = """
@workflow
def loop(image: Image):
    {models}
    positive, negative, third = text_encoder("a"), text_encoder("b"), text_encoder("c")
    controlnet = ControlNet("controlnet.safetensors")
    latents = begun = generator(0, 3, width=64, height=64)
    for _ in range(3):
        residuals = controlnet(latents, positive, negative, image, 0.5)
        {inside}
        latents = step(estimate, latents)
    {after}
    return vae.decode(latents)
"""
ESTIMATE = "estimate = denoiser(latents, positive, negative, residuals)"


def loop(inside: str = ESTIMATE, after: str = "pass", models: str = MODELS) -> str:
    indented = models.strip().replace("\n", "\n    ")
    return LOOP.format(models=indented, inside=inside, after=after)


def problem(text: str) -> InvocationProblem:
    with pytest.raises(InvocationRejected) as caught:
        bound(flow(text), image=PICTURE)
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            loop("estimate = denoiser(latents, positive, third, residuals)"),
            "made for other latents or conditionings than the denoiser's",
        ),
        (
            loop("estimate = denoiser(begun, positive, negative)"),
            "it is of other latents than these",
        ),
        (
            loop(after="latents = step(denoiser(latents, positive, negative), latents)"),
            "all 3 steps of the schedule are done",
        ),
        (
            loop(after="latents = begun"),
            "only 0 of the schedule's 3 steps are done",
        ),
        (
            loop(
                models=MODELS.replace("(denoiser)", '(denoiser, schedule="ddim_uniform")')
            ).replace("generator(0, 3,", "generator(0, 7,"),
            "only 3 of the schedule's 8 steps are done",
        ),
        (loop().replace("width=64", "denoise=0.0, width=64"), "0 leaves no steps to do"),
    ],
)
def test_a_loop_that_would_give_a_wrong_picture_is_refused(text: str, reason: str) -> None:
    found = problem(text)
    assert reason in found.reason
    assert found.place is not None
    assert found.place.file == "flow.py"


def test_a_controlnet_of_strength_0_is_not_asked() -> None:
    without = loop("estimate = denoiser(latents, positive, negative)")
    off = bound(flow(loop().replace("0.5)", "0.0)")), image=PICTURE).graph
    assert contents(off) == contents(bound(flow(without), image=PICTURE).graph)


def test_a_controlnet_may_steer_a_part_of_the_steps() -> None:
    text = loop("estimate = denoiser(latents, positive, negative, residuals if _ < 2 else ())")
    ops = [node.op for node in bound(flow(text), image=PICTURE).graph.nodes]
    assert (ops.count("controlnet"), ops.count("denoise")) == (2, 3)


def test_a_strength_may_be_known_only_when_it_runs() -> None:
    text = """
    @workflow
    def measured(image: Image):
        {models}
        words = text_encoder("a")
        controlnet = ControlNet("controlnet.safetensors")
        latents = generator(Node("GetImageSize")(image)[0], 1)
        residuals = controlnet(latents, words, words, image)
        latents = step(denoiser(latents, words, words, residuals), latents)
        return vae.decode(latents)
    """.replace("{models}", MODELS.strip().replace("\n", "\n        "))
    graph = bound(flow(text), image=PICTURE).graph
    (begin,) = (node for node in graph.nodes if node.op == "sample_begin")
    assert dict(begin.inputs)["seed"].source == "GetImageSize-1"
    assert graph.pending == ()


def test_two_denoisers_may_share_a_run() -> None:
    known = files()
    known.checkpoints["fine.safetensors"] = sd15("fine.safetensors")
    text = loop(
        "estimate = (denoiser if _ < 1 else fine)(latents, positive, negative)",
        models=MODELS + 'fine = Denoiser("fine.safetensors")',
    ).replace(
        "residuals = controlnet(latents, positive, negative, image, 0.5)",
        "controlnet(latents, positive, negative, image)",
    )
    graph = bind(flow(text), {"image": PICTURE}, Registry(), known).graph
    keys = [n.model.key for n in graph.nodes if n.model and n.model.key.role is Role.DENOISER]
    assert [key.label() for key in keys] == [
        "sd15/denoiser:dream.safetensors",
        "sd15/denoiser:fine.safetensors",
        "sd15/denoiser:fine.safetensors",
    ]
