"""What the built-in models of Python workflows stand on: calls of node classes, and LoRAs.

Each call is a node class that ComfyUI graphs have, or one of `nodes/stepwise.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..errors import CompositionError, Fault
from ..nodes.registry import Registry
from ..nodes.schema import NodeSchema
from ..scope import Recorder, active, caller, current
from .arguments import by_name
from .placeholder import Placeholder

# What a caller may give: a Python value, or a placeholder of one. In @workflow functions checkers
# see the former; an output of a call is a placeholder.
Text = str | Placeholder
Whole = int | Placeholder
Number = float | Placeholder
Tensor = Placeholder


@cache
def _registry() -> Registry:
    return Registry()


def schema_of(class_type: str) -> NodeSchema:
    """What a node class declares. Raises: CompositionError: there is none of that name."""
    registry = _registry()
    if class_type not in registry:
        message = f"there is no node class {class_type!r}"
        raise CompositionError(message, Fault.UNKNOWN_INPUT, caller())
    return registry[class_type].schema


class BuiltIn:
    """A model that is there already; `label` names its calls."""

    def __init__(self) -> None:
        self.label = type(self).__name__
        scope = active()
        if scope is not None:
            scope.created(self, caller())

    def _record(self, class_type: str, **given: object) -> tuple[Placeholder, ...]:
        """Record a call, defaults filled in."""
        schema, record = schema_of(class_type), self._scope()
        record.used(self)
        return record.call(
            self.label, schema, by_name(self.label, schema.inputs, (), given, caller())
        )

    def _shared(self, class_type: str, **given: object) -> tuple[Placeholder, ...]:
        """A loader's call: once for equal arguments."""
        schema = schema_of(class_type)
        named = by_name(class_type, schema.inputs, (), given, caller())
        return self._scope().shared_call(class_type.rpartition(".")[2], schema, named)

    def _scope(self) -> Recorder:
        return current(f"a call of {self.label}")


class LoRA(BuiltIn):
    """A LoRA file and how strongly it is applied: something to `add_patch`."""

    def __init__(self, file: Text, strength: Number = 1.0) -> None:
        super().__init__()
        self.file = file
        self.strength = strength


class Patchable(BuiltIn):
    """A model that LoRAs can be put on. What is changed inside a workflow is changed there only."""

    def __init__(self) -> None:
        super().__init__()
        self._patches: list[LoRA] = []

    def add_patch(self, patch: LoRA) -> None:
        """Attach a LoRA to the calls from here on, after those that are attached."""
        if not isinstance(patch, LoRA):
            message = f"add_patch: a LoRA is expected, {type(patch).__name__} given"
            received = type(patch).__name__
            raise CompositionError(
                message, Fault.WRONG_TYPE, caller(), expected="LoRA", received=received
            )
        self._attached().append(patch)

    def rm_patch(self, patch: LoRA) -> None:
        """Detach a LoRA from the calls from here on. Raises: CompositionError: it isn't there."""
        attached = self._attached()
        if patch not in attached:
            message = f"rm_patch: this LoRA is not on the {self.label}"
            raise CompositionError(message, Fault.WRONG_VALUE, caller())
        attached.remove(patch)

    def _attached(self) -> list[LoRA]:
        record = active()
        return self._patches if record is None else record.patches_of(self, self._patches)

    def _patched(self, handle: Placeholder, class_type: str, socket: str, name: str) -> Placeholder:
        for patch in self._attached():
            self._scope().used(patch)
            given = {socket: handle, "lora_name": patch.file, name: patch.strength}
            (handle,) = self._shared(class_type, **given)
        return handle


class Node(BuiltIn):
    """Any node class of ComfyUI graphs, by name: `Node("ImageScale")(image=picture, ...)`."""

    def __init__(self, class_type: str) -> None:
        super().__init__()
        self.label = class_type
        self._schema = schema_of(class_type)

    def __call__(self, *args: object, **inputs: object) -> Any:
        """The node's output; a tuple of several. Inputs go by position, in the class's order, or
        by name; those with a default may be left out."""
        record = self._scope()
        record.used(self)
        given = by_name(self.label, self._schema.inputs, args, inputs, caller())
        outputs = record.call(self.label, self._schema, given)
        return outputs[0] if len(outputs) == 1 else outputs
