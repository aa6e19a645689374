"""Nodes that change how a model is sampled: what they leave on its way into a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES, sampler

from ..prompts import Prompt, node, text_to_image

Import = Callable[[Prompt], Graph]


def op(graph: Graph, name: str) -> dict[str, object]:
    """Params of the first DAG node of an op."""
    found = next(one for one in graph.nodes if one.op == name)
    return dict(found.params) | {key: edge.source for key, edge in found.inputs}


def patched(class_type: str, **inputs: object) -> Prompt:
    prompt = text_to_image(model=["m", 0], steps=1)
    prompt["m"] = node(class_type, model=["4", 0], **inputs)
    return prompt


@pytest.mark.parametrize(("inputs", "strength"), [({}, 1.0), ({"strength": 0.25}, 0.25)])
def test_differential_diffusion_tells_the_run_how_to_read_masks(
    imported: Import, inputs: dict[str, object], strength: float
) -> None:
    graph = imported(patched("DifferentialDiffusion", **inputs))
    assert op(graph, "sample_begin")["mask_by_sigma"] == strength
    assert "mask_by_sigma" not in op(imported(text_to_image()), "sample_begin")


def test_its_strength_has_limits(imported: Import) -> None:
    with pytest.raises(ImportRejected) as caught:
        imported(patched("DifferentialDiffusion", strength=1.5))
    (problem,) = caught.value.problems
    assert problem.node_id == "m"
    assert "strength" in problem.details


def test_perp_neg_on_a_model_guides_wherever_it_is_sampled(imported: Import) -> None:
    prompt = patched("PerpNeg", empty_conditioning=["e", 0], neg_scale=0.5)
    prompt["e"] = node("CLIPTextEncode", text="", clip=["4", 1])
    evaluation = op(imported(prompt), "denoise")
    assert (evaluation["guider"], evaluation["third"], evaluation["cfg_third"]) == (
        "perp_neg",
        "e",
        0.5,
    )


def test_later_patches_leave_perp_neg_on_the_model(imported: Import) -> None:
    prompt = patched("PerpNeg", empty_conditioning=["e", 0], neg_scale=0.5)
    prompt["e"] = node("CLIPTextEncode", text="", clip=["4", 1])
    prompt["n"] = node("RescaleCFG", model=["m", 0], multiplier=0.7)
    prompt["d"] = node("DifferentialDiffusion", model=["n", 0], strength=1.0)
    prompt["g"] = node("CFGGuider", model=["d", 0], positive=["6", 0], negative=["7", 0], cfg=4.0)
    prompt["s"] = node("KSamplerSelect", sampler_name="euler")
    prompt["b"] = node("BasicScheduler", model=["d", 0], scheduler="simple", steps=1, denoise=1.0)
    prompt["r"] = node("RandomNoise", noise_seed=3)
    prompt["3"] = node(
        "SamplerCustomAdvanced",
        noise=["r", 0],
        guider=["g", 0],
        sampler=["s", 0],
        sigmas=["b", 0],
        latent_image=["5", 0],
    )
    graph = imported(prompt)
    assert op(graph, "denoise")["guider"] == "perp_neg"
    assert op(graph, "sample_begin")["mask_by_sigma"] == 1.0


def test_samplers_of_nodes_alone_have_no_name_in_the_list() -> None:
    for name in ("lcm_upscale", "euler_past_guidance"):
        assert sampler(name).name == name
        assert name not in SAMPLER_NAMES


def test_too_many_changes_of_guidance_are_refused(imported: Import) -> None:
    """Every node that uses the model carries all of them."""
    prompt = text_to_image(model=["m64", 0], steps=1)
    for index in range(65):
        model = [f"m{index - 1}", 0] if index else ["4", 0]
        prompt[f"m{index}"] = node("RescaleCFG", model=model, multiplier=0.7)
    with pytest.raises(ImportRejected) as caught:
        imported(prompt)
    (problem,) = caught.value.problems
    assert problem.node_id == "m64"
    assert "65 changes of its guidance are too many" in problem.details
