"""The workflows that a Python file defines."""

from __future__ import annotations

from types import ModuleType

from ..errors import CompositionError, Fault
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
