"""`Model`: the base class that every built-in model and every model of a user's own stands on.

A developer declares the inputs and outputs in `setup_io`, gets the weights in `load` and runs them
in `execute`; LoRAs attach and detach with `add_patch` and `rm_patch`. Calling a model in a workflow
records a node. Source: LegoDiffusion (arXiv 2604.08123), section 4.1, Table 1 and Figure 6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .errors import CompositionError, Fault
from .handles import IoSpec, ModelRef, Patch, Scalar
from .scope import active, caller, current
from .types import BOOLEAN, FLOAT, INT, STRING

PYTHON_TYPES: Final[Mapping[object, str]] = {int: INT, float: FLOAT, str: STRING, bool: BOOLEAN}

Check = Callable[[], None]


def no_check() -> None:
    """Nobody can lose interest in this load."""


def port_type(type_: str | type) -> str:
    """A port type by its name, or by the Python type that stands for it. Raises: KeyError."""
    return type_ if isinstance(type_, str) else PYTHON_TYPES[type_]


class Model(ABC):
    """Something with weights, that an executor loads once and runs for many requests.

    A workflow makes one with `settings`; an executor with the `ref` that they became part of.
    """

    def __init__(self, ref: ModelRef | None = None, **settings: Scalar) -> None:
        self._ref = ref
        self.settings: Mapping[str, Any] = _settings(ref, settings)
        self.inputs: list[IoSpec] = []
        self.outputs: list[IoSpec] = []
        self.patches: list[Patch] = list(ref.patches) if ref else []
        self.setup_io()
        scope = active()
        if ref is None and scope is not None:
            scope.created(self, caller())

    def __call__(self, *args: object, **inputs: object) -> Any:
        """Record a call in the workflow that is being written.

        Inputs go by position, in the order of `setup_io`, or by name. Returns: a placeholder of the
        output; a tuple of them if there are several. Raises: CompositionError.
        """
        return current(f"a call of {type(self).__name__}").invoke(self, args, inputs)

    @property
    def ref(self) -> ModelRef:
        """What an executor made it of. Raises: AttributeError: in a workflow there is no such."""
        if self._ref is None:
            raise AttributeError(f"{type(self).__name__} has no ref outside executors")
        return self._ref

    @ref.setter
    def ref(self, ref: ModelRef) -> None:
        self._ref = ref

    def add_input(self, name: str, type_: str | type, *, deferred: bool = False) -> None:
        """Declare an input of port type `type_`; int, float, str and bool name types, too."""
        self.inputs.append(IoSpec(name=name, type=_declared(type_), is_deferred=deferred))

    def add_output(self, name: str, type_: str | type) -> None:
        """Declare an output of port type `type_`."""
        self.outputs.append(IoSpec(name=name, type=_declared(type_)))

    def add_patch(self, patch: Patch) -> None:
        """Attach a weight change; it takes effect when the weights are next used."""
        self.patches.append(patch)

    def rm_patch(self, patch: Patch) -> None:
        """Detach a weight change. Raises: ValueError: it is not attached."""
        self.patches.remove(patch)

    @abstractmethod
    def setup_io(self) -> None:
        """Declare inputs and outputs with `add_input` and `add_output`."""

    @abstractmethod
    def load(self, device: str, check: Check = no_check) -> None:
        """Read the weights of `self.ref.key` onto `device`.

        `check`, called now and then, raises when nobody waits for the model any more.
        Raises: ModelFileProblem.
        """

    @abstractmethod
    def execute(self, **inputs: object) -> Mapping[str, object]:
        """Run one invocation: the declared inputs by name in, the declared outputs by name out."""

    def execute_batch(self, calls: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Run several invocations; a family that can do them in one forward pass overrides this."""
        return [self.execute(**call) for call in calls]

    @property
    def num_bytes(self) -> int:
        """Bytes that the loaded weights hold; an estimate from the file before `load`."""
        return self.ref.key.size_bytes


def _settings(ref: ModelRef | None, settings: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    if ref is None:
        return dict(settings)
    user_class = ref.key.user_class
    return dict(user_class.settings) if user_class else {}


def _declared(type_: str | type) -> str:
    try:
        return port_type(type_)
    except KeyError as problem:
        message = f"{type_!r} is no port type; IMAGE, LATENT, int and str are, for example"
        raise CompositionError(message, Fault.WRONG_TYPE, caller()) from problem
