"""`NodeClass`: a ComfyUI node type, as its schema and what it lowers to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ..catalog import Catalog
from .lowering import Lowering, Value
from .schema import NodeSchema


class NodeClass(ABC):
    """One node type. Instances hold no state of a prompt.

    `own_checks` names the inputs whose range and choices `validate` judges alone, as ComfyUI's
    validators do with the inputs that they name.
    """

    schema: NodeSchema
    own_checks: ClassVar[frozenset[str]] = frozenset()

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        """Input name -> reason, for each refused literal; converted literals only, no links."""
        return {}

    def wanted(self, node: Lowering) -> frozenset[str]:
        """Which of its lazy inputs this node needs, told from the others.

        Raises: NeedsValue, InputRefused: `lower` will say the same.
        """
        return frozenset()

    @abstractmethod
    def lower(self, node: Lowering) -> tuple[Value, ...]:
        """Add DAG nodes; return a value per output.

        Constants are asked for before anything is added. Raises: NeedsValue, InputRefused.
        """
