"""Conditioning nodes: one op each, and the ControlNets on a conditioning stay on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.builder import GraphBuilder
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.graph_import.ir import Edge, Graph, NodeId, Origin
from nodeloom.graph_import.nodes import conditioning_details
from nodeloom.graph_import.nodes.lowering import (
    Constant,
    Control,
    Handle,
    KnownValues,
    Lowering,
    Steering,
    Value,
    edges_of,
)
from nodeloom.graph_import.nodes.op_table import OPS
from nodeloom.graph_import.nodes.registry import Registry

from ..known_files import CHECKPOINT, KnownFiles, identity
from ..prompts import Prompt, node, text_to_image


def a_model(role: Role) -> ModelRef:
    key = ModelKey(role=role, family="sd15", file=identity(CHECKPOINT), dtype="float16")
    return ModelRef(key=key)


class Bench:
    """A builder with a producer of each type, to lower single nodes on."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        size = {"width": 8, "height": 8, "batch_size": 1}
        (self.latent,) = self._add("latent", "empty_latent", size)
        (self.image,) = self._add("image", "empty_image", {**size, "color": 0})
        picture = {"path": "/files/cat.png", "size_bytes": 1, "mtime_ns": 1}
        _, self.mask = self._add("picture", "load_image", picture)

    def text(self, name: str, *markers: str) -> Steering:
        """A conditioning under the ControlNets with these markers."""
        role = a_model(Role.TEXT_ENCODER)
        (edge,) = self._add(name, "text_encode", {"text": name}, role)
        return Steering(edge=edge, controls=tuple(map(self.control, markers)))

    def control(self, marker: str) -> Control:
        return Control(
            marker=marker,
            model=a_model(Role.CONTROLNET),
            hint=self.image,
            strength=Constant(value=1.0),
            start_percent=0.0,
            end_percent=1.0,
        )

    def lower(self, class_type: str, **inputs: Value) -> tuple[Value, ...]:
        cls = Registry()[class_type]
        lowering = Lowering(
            node_id="n",
            schema=cls.schema,
            inputs=inputs,
            known=KnownValues(),
            catalog=KnownFiles(),
            builder=self.builder,
        )
        return cls.lower(lowering)

    def _add(
        self, name: str, op: str, params: dict[str, int] | dict[str, str], model: object = None
    ) -> tuple[Edge, ...]:
        return self.builder.add(
            NodeId(name),
            op,
            model=model if isinstance(model, ModelRef) else None,
            params=params,
            inputs={},
            outputs=OPS[op].outputs,
            origin=Origin(node_id=name, class_type="Test"),
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def markers(value: Value) -> list[str]:
    assert isinstance(value, Steering)
    return [control.marker for control in value.controls]


def number(value: float) -> Constant:
    return Constant(value=value)


def test_combining_unites_the_controls_in_order(bench: Bench) -> None:
    first, second = bench.text("p", "a", "b"), bench.text("q", "b", "c")
    (combined,) = bench.lower("ConditioningCombine", conditioning_1=first, conditioning_2=second)
    assert markers(combined) == ["a", "b", "c"]


@pytest.mark.parametrize("class_type", ["ConditioningConcat", "ConditioningAverage"])
def test_what_is_mixed_in_brings_no_controls(bench: Bench, class_type: str) -> None:
    inputs: dict[str, Value] = {
        "conditioning_to": bench.text("p", "a"),
        "conditioning_from": bench.text("q", "b"),
    }
    if class_type == "ConditioningAverage":
        inputs["conditioning_to_strength"] = number(0.5)
    (mixed,) = bench.lower(class_type, **inputs)
    assert markers(mixed) == ["a"]


@pytest.mark.parametrize(
    ("class_type", "names"),
    [
        ("ConditioningZeroOut", ()),
        ("ConditioningSetArea", ("width", "height", "x", "y", "strength")),
        ("ConditioningSetAreaPercentage", ("width", "height", "x", "y", "strength")),
        ("ConditioningSetTimestepRange", ("start", "end")),
    ],
)
def test_a_changed_conditioning_keeps_its_controls(
    bench: Bench, class_type: str, names: tuple[str, ...]
) -> None:
    steering = bench.text("p", "b", "a")
    numbers = {name: number(1) for name in names}
    (changed,) = bench.lower(class_type, conditioning=steering, **numbers)
    assert markers(changed) == ["b", "a"]
    assert edges_of(changed)[0].source == "n"


def test_a_mask_leaves_the_controls_too(bench: Bench) -> None:
    (changed,) = bench.lower(
        "ConditioningSetMask",
        conditioning=bench.text("p", "a"),
        mask=bench.mask,
        strength=number(1.0),
        set_cond_area=Constant(value="mask bounds"),
    )
    assert markers(changed) == ["a"]


def test_the_masked_picture_goes_onto_both_sides_with_their_own_controls(bench: Bench) -> None:
    positive, negative, latent = bench.lower(
        "InpaintModelConditioning",
        positive=bench.text("p", "a"),
        negative=bench.text("q", "b"),
        vae=Handle(ref=a_model(Role.VAE)),
        pixels=bench.image,
        mask=bench.mask,
        noise_mask=Constant(value=True),
    )
    assert (markers(positive), markers(negative)) == (["a"], ["b"])
    assert [edge.port for edge in (*edges_of(positive)[:1], *edges_of(negative)[:1])] == [0, 1]
    assert latent == Edge(source=NodeId("n"), port=2)


LITERALS = {"FLOAT": 1.0, "INT": 1, "STRING": "default", "COMBO": "default"}


def filled(bench: Bench, class_type: str) -> dict[str, Value]:
    """A value for each required input; conditioning `x` is steered by a ControlNet `x`."""
    given = {"LATENT": bench.latent, "IMAGE": bench.image, "MASK": bench.mask}
    inputs: dict[str, Value] = {}
    for spec in Registry()[class_type].schema.inputs:
        if spec.type == "CONDITIONING":
            inputs[spec.name] = bench.text(f"text-{spec.name}", spec.name)
        elif spec.type in given:
            inputs[spec.name] = given[spec.type]
        elif spec.is_required:
            inputs[spec.name] = Constant(value=LITERALS[spec.type])
    return inputs


@pytest.mark.parametrize(
    "class_type", [cls.schema.class_type for cls in conditioning_details.NODES]
)
def test_what_is_put_on_entries_leaves_their_controls(bench: Bench, class_type: str) -> None:
    outputs = bench.lower(class_type, **filled(bench, class_type))
    ports = Registry()[class_type].schema.outputs
    found = [
        (port.name, markers(output))
        for port, output in zip(ports, outputs, strict=True)
        if port.type == "CONDITIONING"
    ]
    assert found
    assert all(own == [name.lower()] for name, own in found)


@pytest.mark.parametrize(
    ("class_type", "expected"),
    [
        ("ConditioningSetProperties", [["cond_NEW"]]),
        ("ConditioningSetPropertiesAndCombine", [["cond", "cond_NEW"]]),
        ("ConditioningSetDefaultCombine", [["cond", "cond_DEFAULT"]]),
        ("PairConditioningSetProperties", [["positive_NEW"], ["negative_NEW"]]),
        (
            "PairConditioningSetPropertiesAndCombine",
            [["positive", "positive_NEW"], ["negative", "negative_NEW"]],
        ),
        (
            "PairConditioningSetDefaultCombine",
            [["positive", "positive_DEFAULT"], ["negative", "negative_DEFAULT"]],
        ),
        ("PairConditioningCombine", [["positive_A", "positive_B"], ["negative_A", "negative_B"]]),
    ],
)
def test_what_is_joined_brings_its_controls(
    bench: Bench, class_type: str, expected: list[list[str]]
) -> None:
    outputs = bench.lower(class_type, **filled(bench, class_type))
    assert [markers(output) for output in outputs] == expected
    assert len({edges_of(output)[0].source for output in outputs}) == len(outputs)


def test_what_a_control_reads_counts_as_read() -> None:
    bench = Bench()
    control = bench.control("a")
    strong = Control(
        marker="b",
        model=control.model,
        hint=bench.image,
        strength=bench.latent,
        start_percent=0.0,
        end_percent=1.0,
    )
    steering = Steering(edge=bench.mask, controls=(control, strong))
    assert edges_of(steering) == (bench.mask, bench.image, bench.image, bench.latent)


def advanced(**changes: object) -> Prompt:
    """Text to image on a KSamplerAdvanced of 6 steps."""
    prompt = text_to_image()
    old = prompt["3"]["inputs"]
    kept = ("model", "cfg", "sampler_name", "scheduler", "positive", "negative", "latent_image")
    window = {
        "add_noise": "enable",
        "noise_seed": 7,
        "steps": 6,
        "start_at_step": 0,
        "end_at_step": 10000,
        "return_with_leftover_noise": "disable",
    }
    inputs = {**{name: old[name] for name in kept}, **window, **changes}
    return prompt | {"3": node("KSamplerAdvanced", **inputs)}


def test_a_window_of_a_schedule(imported: Callable[[Prompt], Graph]) -> None:
    whole = imported(advanced()).by_id()
    nodes = imported(
        advanced(
            start_at_step=2,
            end_at_step=4,
            add_noise="disable",
            return_with_leftover_noise="enable",
        )
    ).by_id()
    begin = nodes[NodeId("3/begin")]
    assert begin.param("add_noise") is False
    assert begin.param("sigmas") == whole[NodeId("3/begin")].param("sigmas")[2:5]
    assert NodeId("3/eval-1") in nodes
    assert NodeId("3/eval-2") not in nodes
    assert dict(nodes[NodeId("3/end")].inputs)["latent"] == Edge(source=NodeId("5"), port=0)


def test_a_window_without_steps_hands_the_latent_on(imported: Callable[[Prompt], Graph]) -> None:
    nodes = imported(advanced(start_at_step=6)).by_id()
    assert dict(nodes[NodeId("8")].inputs) == {"samples": Edge(source=NodeId("5"), port=0)}
