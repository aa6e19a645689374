"""Loading: the tensors of one part of a checkpoint, and a module that takes them as its weights.

Modules are made with parameters on meta and get copies of the file's mapped tensors, one by one: no
second copy is made, and a file that is overwritten later changes nothing. Nothing may be missing or
left over: half a model gives a wrong picture.
Source: design notes on models, section 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from ...graph_import.errors import ModelFileProblem
from ...graph_import.handles import FileIdentity
from .weight_files import check_unchanged, problem, read_header

# Leftovers that files carry and no model needs; models.md, section 2.
IGNORED: Final = re.compile(
    r"(^|\.)(position_ids|logit_scale|num_batches_tracked|v_pred|ztsnr|edm_\w+)$"
    r"|^(model_ema|lm_head)\."
)

# Dtypes of model keys that weights may be rounded to.
EIGHT_BITS: Final = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}

MAX_LAYERS: Final = 1000

Check = Callable[[], None]


def no_check() -> None:
    """A load that nobody interrupts."""


@dataclass(slots=True, frozen=True)
class Weights:
    """The tensors of one part of a file by their names in the part; mapped, in the file's dtype."""

    file: FileIdentity
    prefix: str
    tensors: Mapping[str, torch.Tensor]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def shape(self, name: str, num_dims: int) -> tuple[int, ...]:
        """The shape of a tensor that holds numbers; so no width is larger than the file.

        Raises: ModelFileProblem: missing, empty, or of other dimensions.
        """
        tensor = self.tensors.get(name)
        if tensor is None:
            raise problem(self.file.path, f"the weight {self.prefix}{name} is missing")
        if tensor.dim() != num_dims or tensor.numel() == 0:
            raise problem(self.file.path, f"the weight {self.prefix}{name} has a wrong shape")
        return tuple(tensor.shape)

    def count(self, pattern: str) -> int:
        """How many numbers the group of `pattern` takes: 1 + the largest one in any name.

        Raises: ModelFileProblem: more than MAX_LAYERS; a name costs the file nothing.
        """
        digits = [match[1] for match in map(re.compile(pattern).match, self) if match]
        is_short = all(len(one) <= len(str(MAX_LAYERS)) for one in digits)
        number = max(map(int, digits), default=-1) + 1 if is_short else math.inf
        if number > MAX_LAYERS:
            raise problem(self.file.path, "its names count more layers than any model has")
        return int(number)


def read_weights(file: FileIdentity, prefixes: tuple[str, ...], check: Check = no_check) -> Weights:
    """Map the tensors under the first of `prefixes` that the file has.

    Raises: ModelFileProblem: the file changed, is damaged, or holds nothing under them.
    """
    check_unchanged(file)
    try:
        with safe_open(file.path, framework="pt", device="cpu") as stream:
            names = list(stream.keys())
            for prefix in prefixes:
                tensors: dict[str, torch.Tensor] = {}
                for name in names:
                    if name.startswith(prefix):
                        check()
                        tensors[name.removeprefix(prefix)] = stream.get_tensor(name)
                if tensors:
                    return Weights(file=file, prefix=prefix, tensors=tensors)
    except (OSError, SafetensorError) as error:
        raise problem(file.path, f"it can't be read: {error}") from error
    raise problem(file.path, f"it has no weights under {' or '.join(prefixes)}")


def build_module(
    make: Callable[[], Any],
    weights: Weights,
    renamed: Mapping[str, torch.Tensor],
    *,
    dtype: torch.dtype | None,
    device: str,
    stored: torch.dtype | None = None,
    check: Check = no_check,
) -> Any:
    """A module in evaluation mode with `renamed` as its weights.

    Args:
        make: makes the module, whose class has no types; its parameters land on meta.
        renamed: the tensors of `weights` under the module's own names.
        dtype: what floating point weights are held and computed in; None: held as they are.
        stored: a dtype that they are rounded to first, where that is part of the picture.
        check: called between tensors; what it raises ends the load.
    Raises: ModelFileProblem: names the first weights that are missing, left over or misshapen.
    """
    from accelerate import init_empty_weights

    try:
        with init_empty_weights(include_buffers=False):
            module = make()
    except (ValueError, TypeError, RuntimeError, ZeroDivisionError) as error:
        raise problem(weights.file.path, f"its shapes make no known model: {error}") from error
    own = {name: tensor.shape for name, tensor in module.state_dict().items()}
    cast: dict[str, torch.Tensor] = {}
    for name, tensor in renamed.items():
        if IGNORED.search(name):
            continue
        check()
        if name in own and own[name] != tensor.shape:
            found, wanted = list(tensor.shape), list(own[name])
            raise problem(
                weights.file.path, f"the weight {name} has shape {found} instead of {wanted}"
            )
        if name in own and not tensor.is_floating_point():
            stored_as = str(tensor.dtype).removeprefix("torch.")
            raise problem(
                weights.file.path, f"the weight {name} is stored as {stored_as}, not in floats"
            )
        cast[name] = _cast(tensor, stored, dtype, device)
    _refuse_gaps(weights.file, set(own), set(cast))
    module.load_state_dict(cast, strict=True, assign=True)
    module.to(device)  # buffers, which the file does not hold
    return module.eval().requires_grad_(False)


def _cast(
    tensor: torch.Tensor, stored: torch.dtype | None, dtype: torch.dtype | None, device: str
) -> torch.Tensor:
    """The tensor as it is held: never the mapped file itself, which somebody may overwrite."""
    result = tensor if stored is None or not tensor.is_floating_point() else tensor.to(stored)
    if dtype is not None and result.is_floating_point():
        result = result.to(dtype)
    result = result.to(device).contiguous()
    return result.clone() if result.data_ptr() == tensor.data_ptr() else result


def _refuse_gaps(file: FileIdentity, wanted: set[str], found: set[str]) -> None:
    for what, names in (("missing", wanted - found), ("unknown", found - wanted)):
        if names:
            few = ", ".join(sorted(names)[:3])
            raise ModelFileProblem(
                f"{file.path}: {len(names)} weights are {what}: {few} ...",
                file=file.path,
                reason=f"weights are {what}",
                names=sorted(names)[:20],
            )


def estimate_bytes(file: FileIdentity, prefixes: tuple[str, ...]) -> int:
    """Bytes that a part will hold as float32, at most: from the file's header, before it is read.

    The part lies under the first of `prefixes` that the file has.

    Raises: ModelFileProblem: the file changed or is damaged.
    """
    tensors = read_header(Path(file.path)).tensors
    for prefix in prefixes:
        numbers = [
            math.prod(info.shape) for name, info in tensors.items() if name.startswith(prefix)
        ]
        if numbers:
            return sum(numbers) * torch.float32.itemsize
    return 0


def count_bytes(module: torch.nn.Module) -> int:
    """Bytes of a module's parameters and buffers."""
    tensors = [*module.parameters(), *module.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
