"""ControlNets: a node per evaluation that they steer, joined to the denoiser by a deferred edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from nodeloom.graph_import.comfy.importer import grow, import_prompt
from nodeloom.graph_import.comfy.validate import validate
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.ir import EdgeKind, Graph, Node
from nodeloom.graph_import.nodes.base import NodeClass
from nodeloom.graph_import.nodes.lowering import Lowering, Value
from nodeloom.graph_import.nodes.registry import BUILT_IN, Registry
from nodeloom.graph_import.nodes.schema import NodeSchema, ports, socket
from nodeloom.graph_import.types import FLOAT, IMAGE, RESIDUALS

from ..known_files import PICTURE, KnownFiles, every_file, sd15
from ..prompts import Prompt, node, text_to_image

CONTROLNET = "controlnet.safetensors"
OTHER = "other.safetensors"
Import = Callable[[Prompt], Graph]


def known_files() -> KnownFiles:
    files = every_file()
    files.parts["controlnet", OTHER] = sd15(OTHER, frozenset({Role.CONTROLNET}))
    return files


@pytest.fixture
def lowered(registry: Registry) -> Import:
    def lowered(prompt: Prompt) -> Graph:
        files = known_files()
        checked = validate(prompt, registry, files)
        return import_prompt(checked.prompt, checked.roots, registry, files)

    return lowered


def steered(*names: str, apply: str = "ControlNetApplyAdvanced", **more: object) -> Prompt:
    """Text to image under a chain of ControlNets `40`, `41` ... with hint `20`."""
    prompt = text_to_image(steps=6)
    prompt["20"] = node("LoadImage", image=PICTURE)
    positive, negative = ["6", 0], ["7", 0]
    for index, name in enumerate(names):
        prompt[f"3{index}"] = node("ControlNetLoader", control_net_name=name)
        shared = {"control_net": [f"3{index}", 0], "image": ["20", 0], "strength": 0.8}
        if apply == "ControlNetApply":
            prompt[f"4{index}"] = node(apply, conditioning=positive, **{**shared, **more})
            positive = [f"4{index}", 0]
            continue
        shared |= {"start_percent": 0.0, "end_percent": 1.0}
        sides = {"positive": positive, "negative": negative}
        prompt[f"4{index}"] = node(apply, **sides, **{**shared, **more})
        positive, negative = [f"4{index}", 0], [f"4{index}", 1]
    prompt["3"]["inputs"] |= {"positive": positive, "negative": negative}
    return prompt


def of_op(graph: Graph, op: str) -> list[Node]:
    return [found for found in graph.nodes if found.op == op]


def arguments(found: Node) -> dict[str, Any]:
    return {**dict(found.params), **dict(found.inputs)}


def test_each_evaluation_gets_a_node_with_a_deferred_edge(lowered: Import) -> None:
    graph = lowered(steered(CONTROLNET))
    controls, denoisers = of_op(graph, "controlnet"), of_op(graph, "denoise")
    assert (len(controls), len(denoisers)) == (6, 6)
    for index, (control, denoiser) in enumerate(zip(controls, denoisers, strict=True)):
        assert control.model is not None
        assert control.model.key.role is Role.CONTROLNET
        given, taken = arguments(control), arguments(denoiser)
        assert [port.type for port in control.outputs] == [RESIDUALS]
        assert given["hint"].source == "20"
        assert (given["strength"], given["evaluation"]) == (0.8, index)
        same = ("state", "positive", "negative", "cfg", "sampler", "sigmas", "evaluation", "family")
        assert {name: given[name] for name in same} == {name: taken[name] for name in same}
        edge = taken["residuals_0"]
        assert (edge.source, edge.port, edge.kind) == (control.id, 0, EdgeKind.DEFERRED)
        assert taken["marker_0"] == given["marker"]
        assert control.origin.node_id == "3"
        assert control.origin.max_value == 0


def test_both_sides_are_marked(lowered: Import) -> None:
    graph = lowered(steered(CONTROLNET))
    marks = of_op(graph, "cond_control")
    (marker,) = {arguments(mark)["marker"] for mark in marks}
    assert [arguments(mark)["conditioning"].source for mark in marks] == ["6", "7"]
    assert {arguments(found)["marker_0"] for found in of_op(graph, "denoise")} == {marker}


def test_chained_controlnets_are_numbered_in_order(lowered: Import) -> None:
    graph = lowered(steered(CONTROLNET, OTHER))
    denoiser = arguments(of_op(graph, "denoise")[0])
    by_id = graph.by_id()
    files = []
    for index in range(2):
        model = by_id[denoiser[f"residuals_{index}"].source].model
        assert model is not None
        files.append(model.key.file.path)
    assert files == [f"/files/{CONTROLNET}", f"/files/{OTHER}"]
    assert denoiser["marker_0"] != denoiser["marker_1"]


def test_the_same_controlnet_twice_is_one_node_whose_residuals_count_twice(
    lowered: Import,
) -> None:
    graph = lowered(steered(CONTROLNET, CONTROLNET))
    assert len(of_op(graph, "controlnet")) == 6
    assert len(of_op(graph, "cond_control")) == 4  # the entries carry the marker twice
    assert "residuals_1" not in arguments(of_op(graph, "denoise")[0])


def test_a_range_leaves_evaluations_outside_it_alone(lowered: Import) -> None:
    graph = lowered(steered(CONTROLNET, start_percent=0.2, end_percent=0.6))
    sampling = family("sd15").model_sampling
    first, last = sampling.percent_to_sigma(0.2), sampling.percent_to_sigma(0.6)
    sigmas = arguments(of_op(graph, "denoise")[0])["sigmas"]
    expected = [index for index, sigma in enumerate(sigmas[:-1]) if last <= sigma <= first]
    found = [arguments(control)["evaluation"] for control in of_op(graph, "controlnet")]
    assert found == expected
    assert 0 < len(found) < 6


def test_no_step_in_range_needs_no_hint(lowered: Import) -> None:
    graph = lowered(steered(CONTROLNET, start_percent=0.9, end_percent=0.1))
    assert of_op(graph, "controlnet") == of_op(graph, "load_image") == []


@pytest.mark.parametrize("apply", ["ControlNetApply", "ControlNetApplyAdvanced"])
def test_no_strength_is_no_controlnet(lowered: Import, apply: str) -> None:
    graph = lowered(steered(CONTROLNET, apply=apply, strength=0.0))
    plain = lowered(text_to_image(steps=6))
    assert [n.signature for n in graph.nodes] == [n.signature for n in plain.nodes]


def test_the_old_kind_steers_a_negative_side_that_has_none(lowered: Import) -> None:
    graph = lowered(steered(CONTROLNET, apply="ControlNetApply"))
    denoiser = arguments(of_op(graph, "denoise")[0])
    negative = graph.by_id()[denoiser["negative"].source]
    assert negative.op == "cond_control"
    assert arguments(negative)["marker"] == denoiser["marker_0"]
    assert arguments(negative)["conditioning"].source == "7"


def test_the_old_kind_leaves_a_negative_side_alone_that_has_its_own(lowered: Import) -> None:
    prompt = steered(CONTROLNET, apply="ControlNetApply")
    prompt["50"] = {**prompt["40"], "inputs": {**prompt["40"]["inputs"]}}
    prompt["50"]["inputs"] |= {"conditioning": ["7", 0], "strength": 0.3}
    prompt["3"]["inputs"]["negative"] = ["50", 0]
    graph = lowered(prompt)
    assert len(of_op(graph, "cond_control")) == 2
    assert len(of_op(graph, "controlnet")) == 12


def test_only_what_is_steered_tells_controls_apart(lowered: Import) -> None:
    markers = [
        arguments(of_op(lowered(prompt), "denoise")[0])["marker_0"]
        for prompt in (
            steered(CONTROLNET),
            steered(CONTROLNET, strength=0.7),
            steered(CONTROLNET, end_percent=0.9),
            steered(OTHER),
        )
    ]
    assert len(set(markers)) == 4


class Measure(NodeClass):
    """Gives a number that only a run can tell."""

    schema = NodeSchema(
        class_type="Measure",
        display_name="Measure",
        category="test",
        inputs=(socket("image", IMAGE),),
        outputs=ports(FLOAT=FLOAT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("image_size", {"image": node.inputs["image"]})[:1]


def test_a_range_that_is_not_known_yet_leaves_the_sampler_pending() -> None:
    prompt = steered(CONTROLNET, end_percent=["61", 0])
    prompt["61"] = node("Measure", image=["20", 0])
    files, registry = known_files(), Registry((*BUILT_IN, Measure))
    checked = validate(prompt, registry, files)
    graph = import_prompt(checked.prompt, checked.roots, registry, files)
    assert [p.id for p in graph.pending][:2] == ["40", "3"]
    known = {(edge.source, edge.port): 1 for p in graph.pending for edge in p.waits_for}
    grown = grow(graph, checked.prompt, checked.roots, registry, files, known)
    assert grown.pending == ()
    assert len(of_op(grown, "controlnet")) == 6


def reasons(refused: ImportRejected) -> str:
    return "; ".join(problem.details for problem in refused.problems)


def test_a_controlnet_of_another_family_is_refused(registry: Registry) -> None:
    files = known_files()
    foreign = sd15(OTHER, frozenset({Role.CONTROLNET}))
    files.parts["controlnet", OTHER] = msgspec.structs.replace(foreign, family="sdxl")
    checked = validate(steered(OTHER), registry, files)
    with pytest.raises(ImportRejected) as caught:
        import_prompt(checked.prompt, checked.roots, registry, files)
    assert "they are of different families" in reasons(caught.value)


def test_a_file_that_is_no_controlnet_is_refused_before_anything_runs(
    registry: Registry,
) -> None:
    files = known_files()
    files.parts["controlnet", OTHER] = sd15(OTHER, frozenset({Role.VAE}))
    with pytest.raises(ImportRejected) as caught:
        validate(steered(OTHER), registry, files)
    assert "is a vae, not a controlnet" in reasons(caught.value)


def test_the_difference_loader_takes_whole_controlnets(lowered: Import) -> None:
    prompt = steered(CONTROLNET)
    prompt["30"] = node("DiffControlNetLoader", model=["4", 0], control_net_name=CONTROLNET)
    assert len(of_op(lowered(prompt), "controlnet")) == 6


def test_the_advanced_sampler_is_steered_as_well(lowered: Import) -> None:
    prompt = steered(CONTROLNET)
    settings = dict(prompt["3"]["inputs"])
    for name in ("seed", "denoise"):
        del settings[name]
    prompt["3"] = node(
        "KSamplerAdvanced",
        **settings,
        add_noise="enable",
        noise_seed=1,
        start_at_step=2,
        end_at_step=5,
        return_with_leftover_noise="disable",
    )
    assert len(of_op(lowered(prompt), "controlnet")) == 3
