"""The workflows that a Python file defines."""

from __future__ import annotations

from types import ModuleType

from ..errors import CompositionError, Fault, Place
from .invocation import Definition
from .tracing import WorkflowFunction
from .workflow import Workflow


def workflows_in(module: ModuleType) -> dict[str, Definition]:
    """The `Workflow`s and `@workflow` functions of a module by name; imported ones are not its.

    Raises: CompositionError: two have one name.
    """
    found: dict[str, Workflow | WorkflowFunction] = {}
    for value in vars(module).values():
        if isinstance(value, Workflow):
            is_own = value.place.file == module.__file__
        elif isinstance(value, WorkflowFunction):
            is_own = value.module == module.__name__
        else:
            continue
        if not is_own or found.get(value.name) is value:
            continue
        if value.name in found:
            message = f"two workflows of this file are called {value.name!r}"
            raise CompositionError(message, Fault.DUPLICATE_NAME, value.place)
        found[value.name] = value
    return dict(found)


def workflow_in(module: ModuleType, name: str | None) -> Definition:
    """The workflow of a module that is called `name`, or its only one.

    Raises: CompositionError: there is none, or several and none is named.
    """
    found = workflows_in(module)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    there = ", ".join(found) or "none"
    asked = "name one of them" if name is None else f"none is called {name!r}"
    place = Place(file=str(module.__file__), line=1)
    raise CompositionError(f"workflows in this file: {there}; {asked}", Fault.UNKNOWN_INPUT, place)
