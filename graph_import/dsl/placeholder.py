"""`Placeholder`: what stands for a value while a workflow is written. It has a type, and no data.

Whatever would need the data (a condition, a comparison, arithmetic, a text) is refused in words
that say what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol

from ..errors import CompositionError, Fault, Place
from ..handles import Scalar
from ..scope import caller
from ..types import IMAGE, INT
from .program import InputRef, OutputRef


class Owner(Protocol):
    """The workflow that placeholders belong to."""

    name: str

    def structural_value(self, name: str) -> Scalar:
        """The value of input `name` now. Raises: CompositionError: none is known."""
        ...


class Placeholder:
    """A typed value of one workflow: an input, or an output of a call."""

    __slots__ = ("_owner", "_place", "_source", "_type")

    def __init__(
        self, owner: Owner, type_: str, source: InputRef | OutputRef, place: Place
    ) -> None:
        self._owner = owner
        self._type = type_
        self._source = source
        self._place = place

    def __repr__(self) -> str:
        match self._source:
            case InputRef(name=name):
                return f"<{self._type} input {name!r} of workflow {self._owner.name!r}>"
            case OutputRef(node_id=node_id):
                return f"<{self._type} of {node_id}, workflow {self._owner.name!r}>"

    __hash__ = object.__hash__

    def __index__(self) -> int:
        """An INT input in range(), a slice or a repetition: its value becomes structural."""
        if self._type != INT or not isinstance(self._source, InputRef):
            self._refuse("a whole number")
        return int(structural(self))

    def __int__(self) -> int:
        return self.__index__()

    def _refuse(self, use: str) -> NoReturn:
        if isinstance(self._source, InputRef) and self._type != IMAGE:
            advice = (
                f"structural({self._source.name}) gives the input's value, and the workflow is "
                "traced anew for each value"
            )
        else:
            advice = (
                "the value exists only when the workflow runs; what depends on it belongs in a "
                "model's execute()"
            )
        raise CompositionError(
            f"{self!r} is used as {use}, but it is a placeholder: {advice}",
            Fault.USED_AS_DATA,
            caller(),
            received=self._type,
        )


def structural(value: Any) -> Any:
    """The value of a workflow's input while the workflow is traced, to shape it by.

    The workflow is traced anew for each value of such an input. What is no placeholder is returned
    as it is. Raises: CompositionError: the output of a call has no value yet.
    """
    if not isinstance(value, Placeholder):
        return value
    if isinstance(value._source, OutputRef) or value._type == IMAGE:
        value._refuse("a structural value")
    return value._owner.structural_value(value._source.name)


def _refusal(use: str) -> Callable[..., NoReturn]:
    def refuse(self: Placeholder, *_: object) -> NoReturn:
        self._refuse(use)

    return refuse


REFUSED: Final = {
    "a condition": ("bool",),
    "an operand of a comparison": ("eq", "ne", "lt", "le", "gt", "ge"),
    "a number": ("float", "complex", "round", "trunc", "floor", "ceil"),
    "something to iterate over": ("iter", "next", "reversed"),
    "a collection": ("len", "getitem", "contains"),
    "a text": ("str", "format", "bytes"),
    "an operand of arithmetic": (
        *("neg", "pos", "abs", "invert", "divmod", "rdivmod"),
        *(
            side + operator
            for side in ("", "r")
            for operator in (
                *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"),
                *("lshift", "rshift", "and", "or", "xor"),
            )
        ),
    ),
}
for _use, _names in REFUSED.items():
    for _name in _names:
        setattr(Placeholder, f"__{_name}__", _refusal(_use))
