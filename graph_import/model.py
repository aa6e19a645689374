"""`Model`: the base class that every built-in model and every model of a user's own stands on.

A developer declares the inputs and outputs in `setup_io`, gets the weights in `load` and runs them
in `execute`; LoRAs attach and detach with `add_patch` and `rm_patch`.
Source: LegoDiffusion (arXiv 2604.08123), section 4.1, Table 1 and Figure 6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import msgspec

from .handles import ModelRef, Patch


class IoSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A declared input or output; a deferred input is fetched where `execute` first uses it."""

    name: str
    type: str
    is_deferred: bool = False


class Model(ABC):
    """Something with weights, that an executor loads once and runs for many requests."""

    def __init__(self, ref: ModelRef) -> None:
        self.ref = ref
        self.inputs: list[IoSpec] = []
        self.outputs: list[IoSpec] = []
        self.patches: list[Patch] = list(ref.patches)
        self.setup_io()

    def add_input(self, name: str, type_: str, *, deferred: bool = False) -> None:
        """Declare an input of port type `type_`."""
        self.inputs.append(IoSpec(name=name, type=type_, is_deferred=deferred))

    def add_output(self, name: str, type_: str) -> None:
        """Declare an output of port type `type_`."""
        self.outputs.append(IoSpec(name=name, type=type_))

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
    def load(self, device: str, check: Callable[[], None] = lambda: None) -> None:
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
        return self.ref.key.file.size_bytes
