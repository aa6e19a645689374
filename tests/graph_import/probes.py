"""The node classes that the recordings were made with, as schemas of ours; none is ever lowered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeloom.graph_import.catalog import Catalog
from nodeloom.graph_import.ir import Port
from nodeloom.graph_import.nodes.base import NodeClass
from nodeloom.graph_import.nodes.lowering import Lowering, Value
from nodeloom.graph_import.nodes.registry import BUILT_IN, Registry
from nodeloom.graph_import.nodes.schema import (
    InputSpec,
    NodeSchema,
    combo,
    integer,
    number,
    socket,
    switch,
    text,
)

MANY = tuple(f"opt{index:02}" for index in range(25))


class Probe(NodeClass):
    """Validated only."""

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        raise NotImplementedError


def schema(
    class_type: str, inputs: tuple[InputSpec, ...], outputs: str, *, is_output_node: bool
) -> NodeSchema:
    return NodeSchema(
        class_type=class_type,
        display_name=class_type,
        category="probe",
        inputs=inputs,
        outputs=tuple(Port(name=type_, type=type_) for type_ in outputs.split()),
        is_output_node=is_output_node,
    )


class ProbeEmit(Probe):
    schema = schema(
        "ProbeEmit",
        (integer("n", default=3, min=0, max=100),),
        "INT FLOAT STRING BOOLEAN *",
        is_output_node=False,
    )


class ProbeSink(Probe):
    schema = schema(
        "ProbeSink",
        (
            InputSpec(name="value", type="*"),
            InputSpec(name="label", type="STRING", options={"default": ""}, is_required=False),
        ),
        "",
        is_output_node=True,
    )


class ProbePair(Probe):
    schema = schema("ProbePair", (integer("a"), integer("b")), "STRING", is_output_node=True)


class ProbeMultiUI(Probe):
    schema = schema("ProbeMultiUI", (integer("v"),), "INT", is_output_node=True)


class ProbeUnion(Probe):
    schema = schema(
        "ProbeUnion",
        (InputSpec(name="v", type="INT,FLOAT", options={}),),
        "INT,STRING",
        is_output_node=True,
    )


class ProbeImageOnly(Probe):
    schema = schema("ProbeImageOnly", (socket("image", "IMAGE"),), "IMAGE", is_output_node=False)


class ProbeTypes(Probe):
    schema = schema(
        "ProbeTypes",
        (
            integer("i", default=1, min=-10, max=10, step=2),
            number("f", default=0.5, min=0.0, max=1.0, step=0.1),
            text("s", default="x", multiline=False),
            switch("b", default=False),
            combo("c1", ("a", "b", "c"), {"default": "b"}),
            InputSpec(name="c2", type="COMBO", choices=("a", "b", 3), is_listed=False),
            combo("big", MANY, None),
            InputSpec(name="oi", type="INT", options={"min": 0, "max": 5}, is_required=False),
            InputSpec(name="oc", type="COMBO", choices=("p", "q"), is_required=False),
        ),
        "STRING",
        is_output_node=True,
    )


class ProbeValidate(Probe):
    """Its validator judges `mode`, `n` and `pick` alone."""

    schema = schema(
        "ProbeValidate",
        (
            text("mode"),
            integer("n", default=1, min=0, max=5),
            integer("m", default=1, min=0, max=5),
            combo("pick", ("one", "two"), None),
        ),
        "INT",
        is_output_node=True,
    )
    own_checks = frozenset({"mode", "n", "pick"})

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        reasons = {"text": "the validator said no", "none": "None", "false": ""}
        mode = literals.get("mode")
        if mode not in reasons:
            return {}
        return dict.fromkeys(sorted(self.own_checks), reasons[mode])


def recorded_registry() -> Registry:
    """What the recorded server had of the classes that the recordings use."""
    probes = (ProbeEmit, ProbeSink, ProbePair, ProbeMultiUI, ProbeUnion, ProbeImageOnly)
    return Registry((*BUILT_IN, *probes, ProbeTypes, ProbeValidate))
