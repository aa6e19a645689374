"""What ControlNets add between a transformer's blocks, taken as late as it is needed.

diffusers' transformer takes these tensors when it is called. But they change nothing before the end
of its first block, so here they are asked for there: meanwhile another executor may still compute
them. The sums are the same ones, so the result is the same to the bit.
Source: LegoDiffusion (arXiv 2604.08123), section 4.3.2; Esser et al. (arXiv 2403.03206).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from ...errors import NodeFailed
from ...values import CallResiduals

ResidualFetch = Callable[[], CallResiduals | None]  # waits until they are there


@contextmanager
def late_residuals(
    module: Any, fetches: Sequence[ResidualFetch | None], counts: Sequence[int]
) -> Iterator[None]:
    """Within it, a forward of `module` adds the residuals of the calls that share it.

    A call has `counts` rows of the batch; where it has no residuals, nothing is added to them. A
    ControlNet with fewer blocks than the transformer steers several with each.
    """
    if not any(fetches):
        yield
        return
    given: list[CallResiduals | None] = []

    def add(index: int, _module: Any, _args: Any, output: tuple[Any, torch.Tensor]) -> Any:
        if not given:
            given.extend(None if fetch is None else fetch() for fetch in fetches)
        text, hidden = output
        return text, _add(hidden, index / len(module.transformer_blocks), given, counts)

    # The last block is left out: after it nothing is added.
    hooks = [
        block.register_forward_hook(partial(add, index))
        for index, block in enumerate(module.transformer_blocks)
        if not block.context_pre_only
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _add(
    hidden: torch.Tensor,
    depth: float,
    given: Sequence[CallResiduals | None],
    counts: Sequence[int],
) -> torch.Tensor:
    """The hidden states [N, tokens, width] of a block at `depth` (0 to 1) with what is added."""
    total = hidden.clone()
    first = 0
    for residuals, count in zip(given, counts, strict=True):
        part = total[first : first + count]
        first += count
        if residuals is None or not residuals.blocks:
            continue
        residual = residuals.blocks[int(depth * len(residuals.blocks))]
        if part.shape != residual.shape:
            raise NodeFailed(
                f"a residual of shape {list(residual.shape)} does not fit the denoiser's "
                f"{list(part.shape)}: the ControlNet belongs to another model"
            )
        part += residual.to(part.device, part.dtype)
    return total
