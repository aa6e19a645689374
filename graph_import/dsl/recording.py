"""`Recording`: a workflow while its Python text runs. Calls of models become calls of node classes.

Every mistake is raised at the line that makes it. A call can only be given values that exist
already, on deferred inputs too: so calls can't form a cycle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import msgspec

from ..errors import CompositionError, Fault, Place
from ..handles import Scalar
from ..model import Model, port_type
from ..nodes.schema import InputSpec, NodeSchema
from ..nodes.stepwise import SamplerEnd
from ..nodes.user_model import DECLARATION, UserModelNode
from ..scope import caller
from ..types import FLOAT, IMAGE, STRING
from .arguments import by_name, check_argument, constant, needs_end
from .placeholder import Placeholder
from .program import (
    INPUT_TYPES,
    Argument,
    Call,
    InputRef,
    OutputRef,
    Program,
    StructuralUse,
    WorkflowInput,
    WorkflowOutput,
)
from .user_code import declaration_of

MAX_CALLS: Final = 10_000  # as many as a prompt may have nodes
MAX_STRUCTURAL_INT: Final = MAX_CALLS
SAVER: Final = "SaveImage"
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class Recording:
    """Implements `scope.Recorder` and `placeholder.Owner`.

    Args: values: what the inputs are given, as far as that is known: structural uses see it.
    """

    def __init__(self, name: str, values: Mapping[str, Scalar]) -> None:
        self.name = name
        self._values = dict(values)
        self._inputs: dict[str, WorkflowInput] = {}
        self._outputs: dict[str, WorkflowOutput] = {}
        self._calls: dict[str, Call] = {}
        self._structural: dict[str, StructuralUse] = {}
        self._shared: dict[object, tuple[Placeholder, ...]] = {}
        self._uncalled: dict[int, tuple[object, Place]] = {}
        self._patches: dict[int, tuple[object, list[Any]]] = {}
        self._num_by_label: dict[str, int] = {}

    @property
    def inputs(self) -> tuple[WorkflowInput, ...]:
        """The inputs that are declared so far."""
        return tuple(self._inputs.values())

    def add_input(self, name: str, type_: object, default: object, place: Place) -> Placeholder:
        """Declare an input. Raises: CompositionError: its name, type or default makes no sense."""
        _check_name("input", name, self._inputs, place)
        port = _input_type(name, type_, place)
        value: Scalar | msgspec.UnsetType = msgspec.UNSET
        if default is not msgspec.UNSET:
            spec = InputSpec(name=name, type=STRING if port == IMAGE else port)
            check_argument(f"workflow {self.name!r}", spec, default, place)
            value = constant(default)
            value = float(value) if port == FLOAT and type(value) is int else value
        self._inputs[name] = WorkflowInput(name=name, type=port, default=value, place=place)
        return Placeholder(self, port, InputRef(name=name), place)

    def add_output(self, value: object, name: str, prefix: str | None, place: Place) -> None:
        """Save `value`, pictures, as result `name`. Raises: CompositionError."""
        _check_name("output", name, self._outputs, place)
        spec = InputSpec(name=name, type=IMAGE)
        label = f"workflow {self.name!r}, output"
        images = self._argument(label, spec, value, place)
        node_id = f"output-{name}"
        saved = {"images": images, "filename_prefix": name if prefix is None else prefix}
        self._add(
            Call(
                node_id=node_id,
                class_type=SAVER,
                inputs=tuple(saved.items()),
                title=f"Output {name}",
                place=place,
            )
        )
        self._outputs[name] = WorkflowOutput(name=name, node_id=node_id, place=place)

    def call(
        self, label: str, schema: NodeSchema, given: Mapping[str, object]
    ) -> tuple[Placeholder, ...]:
        """Record a call of a node class; returns a placeholder per output.

        `given` has a value for every required input (`arguments.by_name`).
        Raises: CompositionError: a value doesn't fit its input.
        """
        place = caller()
        return self._record(label, schema, self._arguments(label, schema, given, place), place)

    def shared_call(
        self, label: str, schema: NodeSchema, given: Mapping[str, object]
    ) -> tuple[Placeholder, ...]:
        """`call`, but once for equal arguments: loaders, which add nothing to the DAG."""
        place = caller()
        inputs = self._arguments(label, schema, given, place)
        key = (schema.class_type, inputs)
        if key not in self._shared:
            self._shared[key] = self._record(label, schema, inputs, place)
        return self._shared[key]

    def _record(
        self,
        label: str,
        schema: NodeSchema,
        inputs: tuple[tuple[str, Argument], ...],
        place: Place,
    ) -> tuple[Placeholder, ...]:
        number = self._num_by_label[label] = self._num_by_label.get(label, 0) + 1
        node_id = f"{label}-{number}"
        title = f"{label} ({PurePath(place.file).name}:{place.line})"
        self._add(
            Call(
                node_id=node_id,
                class_type=schema.class_type,
                inputs=inputs,
                title=title,
                place=place,
            )
        )
        return tuple(
            Placeholder(self, port.type, OutputRef(node_id=node_id, slot=slot), place)
            for slot, port in enumerate(schema.outputs)
        )

    def created(self, model: object, place: Place) -> None:
        self._uncalled[id(model)] = (model, place)

    def used(self, model: object) -> None:
        """`model` was called, or attached to one."""
        self._uncalled.pop(id(model), None)

    def patches_of(self, model: object, before: Sequence[Any]) -> list[Any]:
        """The patches on `model` in this workflow, which had `before` when it began."""
        return self._patches.setdefault(id(model), (model, list(before)))[1]

    def invoke(self, model: Model, args: Sequence[object], inputs: Mapping[str, object]) -> Any:
        place = caller()
        label = type(model).__name__
        self.used(model)
        declared = declaration_of(model, place)
        schema = UserModelNode(declared).schema
        own = [spec for spec in schema.inputs if spec.name != DECLARATION]
        given = by_name(label, own, args, inputs, place)
        outputs = self.call(label, schema, {DECLARATION: declared.to_json(), **given})
        return outputs[0] if len(outputs) == 1 else outputs

    def structural_value(self, name: str) -> Scalar:
        place = caller()
        value = self._values.get(name, self._inputs[name].default)
        if isinstance(value, msgspec.UnsetType):
            message = f"input {name!r} shapes the workflow here: give it a default or a value"
            raise CompositionError(message, Fault.NEEDS_VALUE, place, input=name)
        if type(value) is int and abs(value) > MAX_STRUCTURAL_INT:
            message = f"input {name!r} shapes the workflow; {value} is beyond {MAX_STRUCTURAL_INT}"
            raise CompositionError(message, Fault.TOO_LARGE, place, input=name)
        self._structural.setdefault(name, StructuralUse(name=name, value=value, place=place))
        return value

    def finish(self, place: Place) -> Program:
        """The recorded program.

        Raises: CompositionError: no output, or a model that is never called. (Values other than the
        defaults may well take all calls of one away.)
        """
        shaped = self._structural.values()
        is_default = all(use.value == self._inputs[use.name].default for use in shaped)
        for model, created in self._uncalled.values() if is_default else ():
            message = f"{type(model).__name__} is made here, but no call uses it"
            raise CompositionError(message, Fault.UNUSED_MODEL, created)
        if not self._outputs:
            message = f"workflow {self.name!r} has no output: add_output(), or return the pictures"
            raise CompositionError(message, Fault.NO_OUTPUT, place)
        return Program(
            name=self.name,
            inputs=tuple(self._inputs.values()),
            outputs=tuple(self._outputs.values()),
            calls=tuple(self._calls.values()),
            structural=tuple(self._structural.values()),
        )

    def _arguments(
        self, label: str, schema: NodeSchema, given: Mapping[str, object], place: Place
    ) -> tuple[tuple[str, Argument], ...]:
        return tuple(
            (spec.name, self._argument(label, spec, given[spec.name], place))
            for spec in schema.inputs
            if given.get(spec.name) is not None
        )

    def _argument(self, label: str, spec: InputSpec, value: object, place: Place) -> Argument:
        if isinstance(value, Placeholder) and value._owner is not self:
            message = (
                f"{label}, input {spec.name!r}: {value!r} (from {value._place}) belongs to another "
                f"workflow than {self.name!r}"
            )
            raise CompositionError(
                message, Fault.FOREIGN_VALUE, place, expected=spec.type, received=value._type
            )
        if needs_end(spec, value):
            (value,) = self.shared_call("SamplerEnd", SamplerEnd.schema, {"latents": value})
        check_argument(label, spec, value, place)
        return value._source if isinstance(value, Placeholder) else constant(value)

    def _add(self, call: Call) -> None:
        if len(self._calls) >= MAX_CALLS:
            message = f"workflow {self.name!r} has more than {MAX_CALLS} calls"
            raise CompositionError(message, Fault.TOO_LARGE, call.place)
        self._calls[call.node_id] = call


def _input_type(name: str, type_: object, place: Place) -> str:
    """The port type of a declared input. Raises: CompositionError."""
    try:
        port = port_type(type_) if isinstance(type_, str | type) else ""
    except KeyError:
        port = ""
    if port not in INPUT_TYPES:
        message = f"input {name!r} is of type {type_!r}; one of {', '.join(INPUT_TYPES)} can be"
        raise CompositionError(message, Fault.WRONG_TYPE, place, received=str(type_))
    return port


def _check_name(kind: str, name: object, taken: Mapping[str, object], place: Place) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        message = f"{name!r} can't be the name of an {kind}: letters, digits, _ and - can"
        raise CompositionError(message, Fault.WRONG_VALUE, place)
    if name in taken:
        message = f"two {kind}s of the workflow are called {name!r}"
        raise CompositionError(message, Fault.DUPLICATE_NAME, place)
