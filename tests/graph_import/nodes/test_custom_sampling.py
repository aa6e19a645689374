"""Samplers, their options and SIGMAS from nodes: what can't be sampled is refused by node."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES
from nodeloom.graph_import.sampling.schedules import SCHEDULE_NAMES

from ..prompts import Prompt, node, text_to_image

Import = Callable[[Prompt], Graph]


def along(sigmas: str, sampler: dict[str, object], *, is_flow: bool) -> Prompt:
    """A SamplerCustom along written sigmas, of SD1.5 or of it as a flow."""
    prompt = text_to_image()
    prompt["m"] = node("ModelSamplingSD3", model=["4", 0], shift=3.0)
    prompt["w"] = node("ManualSigmas", sigmas=sigmas)
    prompt["s"] = sampler
    prompt["3"] = node(
        "SamplerCustom",
        model=["m" if is_flow else "4", 0],
        add_noise=True,
        noise_seed=3,
        cfg=4.0,
        positive=["6", 0],
        negative=["7", 0],
        sampler=["s", 0],
        sigmas=["w", 0],
        latent_image=["5", 0],
    )
    return prompt


def named(name: str) -> dict[str, object]:
    return node("KSamplerSelect", sampler_name=name)


def refusal(imported: Import, prompt: Prompt) -> tuple[str, str]:
    """Which node is refused, and why."""
    with pytest.raises(ImportRejected) as caught:
        imported(prompt)
    (problem,) = caught.value.problems
    return problem.node_id, problem.details


@pytest.mark.parametrize("name", ["dpmpp_sde", "dpmpp_3m_sde", "er_sde", "dpmpp_2s_ancestral"])
def test_levels_that_a_flow_does_not_have_are_refused(imported: Import, name: str) -> None:
    node_id, details = refusal(imported, along("0.5, 0.7, 1.0", named(name), is_flow=True))
    assert node_id == "3"
    assert details.startswith(f"sigmas - the sampler {name} has no finite result")
    assert imported(along("0.9, 0.7, 0.5", named(name), is_flow=True))


def test_options_whose_powers_overflow_are_refused(imported: Import) -> None:
    options = {"solver_type": "Reverse-time SDE", "max_stage": 3, "eta": 100.0, "s_noise": 1.0}
    prompt = along("5000, 1, 0", node("SamplerER_SDE", **options), is_flow=False)
    assert refusal(imported, prompt)[0] == "3"
    prompt["s"]["inputs"]["eta"] = 1.0
    assert imported(prompt)


def no_numbers() -> dict[str, Prompt]:
    """Prompts with a text that Python reads as NaN, which passes any range; by the node with it."""
    prompts: dict[str, Prompt] = {}
    ancestral = node("SamplerEulerAncestral", eta="nan", s_noise=1.0)
    prompts["s"] = along("1, 0", ancestral, is_flow=False)
    prompts["f"] = along("1, 0", named("euler"), is_flow=False)
    prompts["f"]["f"] = node("SetFirstSigma", sigmas=["w", 0], sigma="NaN")
    prompts["f"]["3"]["inputs"]["sigmas"] = ["f", 0]
    changes = {
        "r": node("RescaleCFG", model=["4", 0], multiplier="nan"),
        "d": node("DifferentialDiffusion", model=["4", 0], strength="nan"),
        "v": node("ModelSamplingSD3", model=["4", 0], shift="nan"),
    }
    for node_id, change in changes.items():
        prompts[node_id] = text_to_image(model=[node_id, 0]) | {node_id: change}
    prompts["3"] = text_to_image(denoise="nan")
    return prompts


@pytest.mark.parametrize("node_id", sorted(no_numbers()))
def test_no_option_and_no_sigma_is_not_a_number(imported: Import, node_id: str) -> None:
    refused, details = refusal(imported, no_numbers()[node_id])
    assert refused == node_id
    assert details.endswith("nan is no finite number")


@pytest.mark.parametrize("sigmas", ["", "1", "0", "14.6"])
def test_without_a_step_both_outputs_are_the_latent(imported: Import, sigmas: str) -> None:
    for name in SAMPLER_NAMES:
        graph = imported(along(sigmas, named(name), is_flow=False))
        assert not any("sample" in one.op or one.op == "denoise" for one in graph.nodes), name


@pytest.mark.parametrize("name", SAMPLER_NAMES)
def test_every_sampler_takes_every_schedule_of_a_flow(imported: Import, name: str) -> None:
    for scheduler in SCHEDULE_NAMES:
        prompt = text_to_image(sampler_name=name, scheduler=scheduler, model=["m", 0], steps=4)
        prompt["m"] = node("ModelSamplingSD3", model=["4", 0], shift=3.0)
        assert imported(prompt)


def test_a_run_too_long_is_refused_before_it_is_tried(imported: Import) -> None:
    prompt = text_to_image(sampler_name="er_sde", steps=10_000)
    with pytest.raises(ImportRejected) as caught:
        imported(prompt)
    (problem,) = caught.value.problems
    assert (problem.node_id, problem.type) == ("3", "prompt_too_large")
