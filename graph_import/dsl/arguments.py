"""What may be given on an input of a call: placeholders and constants, by the declared type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

from ..errors import CompositionError, Fault, Place
from ..handles import Scalar
from ..nodes.literals import InputRefused, check_choice, check_range
from ..nodes.schema import InputConfig, InputSpec
from ..nodes.user_model import MAX_INT, MIN_INT
from ..types import BOOLEAN, COMBO, FLOAT, INT, LATENT, SAMPLER_STATE, STRING, connects, union
from .placeholder import Placeholder
from .program import InputRef

# What an input of the workflow may feed beside its own type: its value is there when it is lowered.
WIDENS_TO: Final[Mapping[str, frozenset[str]]] = {
    INT: frozenset({FLOAT, COMBO}),
    STRING: frozenset({COMBO}),
    FLOAT: frozenset({COMBO}),
}
TYPES_OF_CONSTANTS: Final[Sequence[tuple[type, str]]] = (
    (bool, BOOLEAN),  # before int: a bool is one
    (int, INT),
    (float, FLOAT),
    (str, STRING),
)


def by_name(
    label: str,
    specs: Sequence[InputSpec],
    args: Sequence[object],
    inputs: Mapping[str, object],
    place: Place,
) -> dict[str, object]:
    """What a call gives to each input, by position or by name; defaults filled in.

    Raises: CompositionError: an input is missing, unknown, or given twice.
    """
    names = [spec.name for spec in specs]
    if len(args) > len(names):
        message = f"{label} takes {len(names)} inputs, {len(args)} are given"
        raise CompositionError(message, Fault.UNKNOWN_INPUT, place)
    given = dict(zip(names, args, strict=False))
    for name, value in inputs.items():
        if name not in names:
            message = f"{label} has no input {name!r}; its inputs: {', '.join(names) or 'none'}"
            raise CompositionError(message, Fault.UNKNOWN_INPUT, place, input=name)
        if name in given:
            message = f"{label} gets {name!r} twice, by position and by name"
            raise CompositionError(message, Fault.DUPLICATE_NAME, place, input=name)
        given[name] = value
    for spec in specs:
        if spec.name in given:
            continue
        default = (spec.options or {}).get("default")
        if default is not None:
            given[spec.name] = default
        elif spec.is_required:
            message = f"{label} needs input {spec.name!r}, of type {spec.type}"
            raise CompositionError(
                message, Fault.MISSING_INPUT, place, input=spec.name, expected=spec.type
            )
    return {name: given[name] for name in names if name in given}


def needs_end(spec: InputSpec, value: object) -> bool:
    """Whether latents between two steps are given where a finished latent is declared."""
    return isinstance(value, Placeholder) and (spec.type, value._type) == (LATENT, SAMPLER_STATE)


def check_argument(label: str, spec: InputSpec, value: object, place: Place) -> None:
    """Raises: CompositionError: `value` can't be given on this input."""
    if isinstance(value, Placeholder):
        _check_type(label, spec, value._type, value, place)
        return
    received = type_of_constant(value)
    if received is None:
        raise _wrong_type(label, spec, type(value).__name__, f" ({value!r:.60})", place)
    _check_type(label, spec, received, value, place)
    if reason := unstorable(value):
        message = f"{label}, input {spec.name!r}: {reason}"
        raise CompositionError(message, Fault.WRONG_VALUE, place, input=spec.name)
    try:
        check_range(spec, value, lambda: _config(spec))
        if isinstance(spec.choices, tuple):
            check_choice(spec, value, spec.choices, lambda: _config(spec))
    except InputRefused as refused:
        reason = f"{refused.complaint.message} ({refused.complaint.details})"
        message = f"{label}, input {spec.name!r}: {reason}"
        raise CompositionError(message, Fault.WRONG_VALUE, place, input=spec.name) from refused


def type_of_constant(value: object) -> str | None:
    """The port type of a Python value; None: it can't be written into a workflow."""
    return next((type_ for kind, type_ in TYPES_OF_CONSTANTS if type(value) is kind), None)


def unstorable(value: object) -> str | None:
    """Why a constant can't be stored and sent on; None: it can."""
    match value:
        case float() if not math.isfinite(value):
            return f"{value} is no number that can be stored"
        case int() if not MIN_INT <= value <= MAX_INT:
            return f"a whole number must be from {MIN_INT} to {MAX_INT}"
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return "this text has half a surrogate pair"
    return None


def constant(value: object) -> Scalar:
    """A value that `check_argument` let pass."""
    return cast(Scalar, value)


def _check_type(label: str, spec: InputSpec, received: str, value: object, place: Place) -> None:
    if connects(received, spec.type):
        return
    is_known_early = not isinstance(value, Placeholder) or isinstance(value._source, InputRef)
    if is_known_early and WIDENS_TO.get(received, frozenset()) & union(spec.type):
        return
    shown = "" if isinstance(value, Placeholder) else f" ({value!r:.60})"
    raise _wrong_type(label, spec, received, shown, place)


def _wrong_type(
    label: str, spec: InputSpec, received: str, shown: str, place: Place
) -> CompositionError:
    return CompositionError(
        f"{label}, input {spec.name!r}: {spec.type} expected, {received}{shown} given",
        Fault.WRONG_TYPE,
        place,
        input=spec.name,
        expected=spec.type,
        received=received,
    )


def _config(spec: InputSpec) -> InputConfig:
    return [spec.type, dict(spec.options or {})]
