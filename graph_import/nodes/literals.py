"""Literals against their declared inputs: conversion, ranges, choices.

Conversions and words are Python's, as ComfyUI's are. Source: spec comfyui-api/validation.md,
sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ..types import BOOLEAN, FLOAT, INT, STRING, takes_literals
from .schema import InputConfig, InputSpec

ConfigSource = Callable[[], InputConfig]  # only an error shows it, and making it may list files
MAX_SHOWN_CHOICES: Final = 20
CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    INT: int,
    FLOAT: float,
    STRING: str,
    BOOLEAN: bool,
}


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with an input: an `ImportProblem` that does not know its node yet."""

    type: str
    message: str
    details: str
    extra_info: dict[str, object]


class InputRefused(Exception):
    """A value can't be what its input wants; the importer adds the node."""

    def __init__(self, complaint: Complaint) -> None:
        super().__init__(complaint.details)
        self.complaint = complaint


def convert(spec: InputSpec, value: Any, config: ConfigSource) -> Any:
    """`value` as the declared type wants it; combos and unions are left as they are.

    Raises: InputRefused: Python can't convert it, or only a link can feed the input.
    """
    try:
        if spec.type in CONVERSIONS:
            return CONVERSIONS[spec.type](value)
        if takes_literals(spec.type):
            return value
        raise TypeError(f"{spec.type} can only come over a link, not as {type(value).__name__}")
    except (TypeError, ValueError, OverflowError) as problem:
        raise InputRefused(
            Complaint(
                type="invalid_input_type",
                message=f"Failed to convert an input value to a {spec.type} value",
                details=f"{spec.name}, {value}, {problem}",
                extra_info={
                    "input_name": spec.name,
                    "input_config": config(),
                    "received_value": value,
                    "exception_message": str(problem),
                },
            )
        ) from problem


def check_range(spec: InputSpec, value: Any, config: ConfigSource) -> None:
    """Raises: InputRefused: a converted number is outside min and max. NaN passes any range."""
    options = spec.options or {}
    if spec.type not in (INT, FLOAT):
        return
    low, high = options.get("min"), options.get("max")
    if isinstance(low, int | float) and value < low:
        message, type_ = f"Value {value} smaller than min of {low}", "value_smaller_than_min"
    elif isinstance(high, int | float) and value > high:
        message, type_ = f"Value {value} bigger than max of {high}", "value_bigger_than_max"
    else:
        return
    raise InputRefused(
        Complaint(
            type=type_,
            message=message,
            details=spec.name,
            extra_info={
                "input_name": spec.name,
                "input_config": config(),
                "received_value": value,
            },
        )
    )


def check_choice(
    spec: InputSpec, value: Any, choices: tuple[object, ...], config: ConfigSource
) -> None:
    """Raises: InputRefused: `value` equals none of the choices."""
    if value in choices:
        return
    is_long = len(choices) > MAX_SHOWN_CHOICES
    among = f"(list of length {len(choices)})" if is_long else str(list(choices))
    raise InputRefused(
        Complaint(
            type="value_not_in_list",
            message="Value not in list",
            details=f"{spec.name}: '{value}' not in {among}",
            extra_info={
                "input_name": spec.name,
                "input_config": None if is_long else config(),
                "received_value": value,
            },
        )
    )


def custom_failure(name: str, reason: str) -> Complaint:
    """What a node class's own validator says of an input; no reason is the original's `False`."""
    return Complaint(
        type="custom_validation_failed",
        message="Custom validation failed for node",
        details=f"{name} - {reason}" if reason else name,
        extra_info={"input_name": name},
    )
