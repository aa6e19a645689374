"""What ControlNets add to a UNet's evaluation, taken as late as it is needed.

diffusers' UNet takes these tensors when it is called. But they only change what the decoder half
reads, so here they are asked for after the encoder half and the middle block: meanwhile another
executor may still compute them. The sums are the same ones, so the result is the same to the bit.
Source: LegoDiffusion (arXiv 2604.08123), section 4.3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...errors import NodeFailed
from ...values import CallResiduals

ResidualFetch = Callable[[], CallResiduals | None]  # waits until they are there


@contextmanager
def late_residuals(
    module: Any, fetches: Sequence[ResidualFetch | None], counts: Sequence[int]
) -> Iterator[None]:
    """Within it, a forward of the UNet `module` adds the residuals of the calls that share it.

    A call has `counts` rows of the batch; where it has no residuals, nothing is added to them.
    """
    if not any(fetches):
        yield
        return
    skips: list[torch.Tensor] = []  # what the decoder half reads of the encoder half

    def keep_first(_module: Any, _args: Any, sample: torch.Tensor) -> None:
        skips.append(sample)

    def keep(
        _module: Any, _args: Any, given: tuple[torch.Tensor, tuple[torch.Tensor, ...]]
    ) -> None:
        skips.extend(given[1])

    def add(_module: Any, _args: Any, middle: torch.Tensor) -> torch.Tensor:
        given = [None if fetch is None else fetch() for fetch in fetches]
        return _add(skips, middle, given, counts)

    hooks = [
        module.conv_in.register_forward_hook(keep_first),
        *(block.register_forward_hook(keep) for block in module.down_blocks),
        module.mid_block.register_forward_hook(add),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _add(
    skips: Sequence[torch.Tensor],
    middle: torch.Tensor,
    given: Sequence[CallResiduals | None],
    counts: Sequence[int],
) -> torch.Tensor:
    """Add to the skips in place (nobody else reads them any more); returns the middle's sum."""
    total = middle.clone()
    first = 0
    for residuals, count in zip(given, counts, strict=True):
        rows = slice(first, first + count)
        first += count
        if residuals is None:
            continue
        targets = [*skips, total]
        if len(residuals.blocks) != len(targets):
            raise NodeFailed(
                f"the ControlNet gives {len(residuals.blocks)} residuals where this denoiser takes "
                f"{len(targets)}: it belongs to another family"
            )
        for target, residual in zip(targets, residuals.blocks, strict=True):
            part = target[rows]
            if part.shape != residual.shape:
                raise NodeFailed(
                    f"a residual of shape {list(residual.shape)} does not fit the denoiser's "
                    f"{list(part.shape)}: the ControlNet belongs to another family"
                )
            part += residual.to(part.device, part.dtype)
    return total
