"""ControlNets that look at latents: a hint is encoded once for a run, by the VAE that is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.catalog import CheckpointInfo
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.comfy.validate import validate
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.ir import Graph, Node
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.context import PassContext
from nodeloom.graph_import.passes.dedupe import dedupe

from ..known_files import CHECKPOINT, PICTURE, SD15_ROLES, KnownFiles, identity
from ..prompts import Prompt, node, text_to_image

CONTROLNET = "controlnet.safetensors"
STEPS = 4
Import = Callable[[Prompt], Graph]


def of_sd3(name: str, roles: frozenset[Role]) -> CheckpointInfo:
    return CheckpointInfo(file=identity(name), family="sd3", roles=roles, dtype="float16")


@pytest.fixture
def lowered(registry: Registry) -> Import:
    def lowered(prompt: Prompt) -> Graph:
        files = KnownFiles(
            checkpoints={CHECKPOINT: of_sd3(CHECKPOINT, SD15_ROLES)},
            parts={("controlnet", CONTROLNET): of_sd3(CONTROLNET, frozenset({Role.CONTROLNET}))},
        )
        checked = validate(prompt, registry, files)
        return import_prompt(checked.prompt, checked.roots, registry, files)

    return lowered


def steered(apply: str, **more: object) -> Prompt:
    prompt = text_to_image(steps=STEPS)
    prompt["20"] = node("LoadImage", image=PICTURE)
    prompt["30"] = node("ControlNetLoader", control_net_name=CONTROLNET)
    prompt["40"] = node(
        apply,
        positive=["6", 0],
        negative=["7", 0],
        control_net=["30", 0],
        image=["20", 0],
        strength=0.8,
        start_percent=0.0,
        end_percent=1.0,
        **more,
    )
    prompt["3"]["inputs"] |= {"positive": ["40", 0], "negative": ["40", 1]}
    return prompt


def of_op(graph: Graph, op: str) -> list[Node]:
    return [found for found in graph.nodes if found.op == op]


@pytest.mark.parametrize("apply", ["ControlNetApplySD3", "ControlNetApplyAdvanced"])
def test_the_hint_is_encoded_once_for_all_evaluations(apply: str, lowered: Import) -> None:
    graph = dedupe(lowered(steered(apply, vae=["4", 2])), PassContext())
    (encoded,) = of_op(graph, "encode_hint")
    assert encoded.model is not None
    assert encoded.model.key.role is Role.VAE
    controls = of_op(graph, "controlnet")
    assert len(controls) == STEPS
    for control in controls:
        inputs = dict(control.inputs)
        assert inputs["hint_latent"].source == encoded.id
        assert "hint" not in inputs


def test_without_a_vae_the_controlnet_is_refused(lowered: Import) -> None:
    with pytest.raises(ImportRejected) as caught:
        lowered(steered("ControlNetApplyAdvanced"))
    (problem,) = caught.value.problems
    assert problem.node_id == "40"
    assert "give ControlNetApplyAdvanced a VAE" in str(problem)


def test_a_samplers_noise_levels_are_those_that_its_model_was_told(lowered: Import) -> None:
    prompt = text_to_image(steps=STEPS)
    plain = lowered(prompt)
    prompt["12"] = node("ModelSamplingSD3", model=["4", 0], shift=5.0)
    prompt["3"]["inputs"]["model"] = ["12", 0]
    shifted = lowered(prompt)
    (first, *_), (other, *_) = of_op(plain, "denoise"), of_op(shifted, "denoise")
    assert "model_sampling" not in dict(first.params)
    assert '"shift":5.0' in str(dict(other.params)["model_sampling"])
    assert dict(first.params)["sigmas"] != dict(other.params)["sigmas"]
