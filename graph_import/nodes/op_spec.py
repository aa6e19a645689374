"""What an op takes and gives; the ops themselves stand in `op_table.py`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from ..handles import Role
from ..ir import Port
from ..types import PATCH


class OpSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One op: argument types by name, and what comes out.

    `numbered` arguments may be given any number of times, from none, as `name_0`, `name_1` ...; any
    op with a model takes `patch_N`, the patch nodes that it waits for.
    """

    args: Mapping[str, str]
    outputs: tuple[Port, ...]
    optional: Mapping[str, str] = MappingProxyType({})
    role: Role | None = None
    numbered: Mapping[str, str] = MappingProxyType({})

    def type_of(self, name: str) -> str:
        """The type of an argument. Raises: KeyError: the op takes none of that name."""
        if name in self.args:
            return self.args[name]
        if name in self.optional:
            return self.optional[name]
        stem, _, number = name.rpartition("_")
        if not number.isdecimal():
            raise KeyError(name)
        if stem == "patch" and self.role is not None:
            return PATCH
        return self.numbered[stem]
