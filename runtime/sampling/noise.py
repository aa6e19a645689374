"""Noise that depends on a seed alone: the initial noise, and each request's own stream.

Both are drawn on the CPU, so that a picture doesn't depend on the device. The stream's generator
state travels with the request (`SamplingRun.generator`): a step may run anywhere, or again.
"""

from __future__ import annotations

from typing import Final

import torch

from ..errors import NodeFailed

SEED_RANGE: Final = 2**64


def initial_noise(
    shape: torch.Size | tuple[int, ...],
    seed: int,
    batch_index: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Standard normal noise of a whole batch, on the CPU; `seed` is 0 to 2^64 - 1.

    It is drawn as `dtype`: half precision isn't float32's draw, rounded. With a `batch_index`, item
    i gets the noise that is drawn as number batch_index[i], one item after another. Raises:
    NodeFailed: it isn't one number for each item.
    """
    return noise_and_rest(shape, seed, batch_index, dtype)[0]


def noise_and_rest(
    shape: torch.Size | tuple[int, ...],
    seed: int,
    batch_index: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`initial_noise`, and the state of the generator after it, uint8 [n]. Raises: as that does."""
    generator = torch.Generator().manual_seed(seed)
    noise = _drawn(generator, shape, batch_index, dtype)
    return noise, generator.get_state()


def _drawn(
    generator: torch.Generator,
    shape: torch.Size | tuple[int, ...],
    batch_index: tuple[int, ...] | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    if batch_index is None:
        return torch.randn(shape, generator=generator, dtype=dtype)
    if len(batch_index) != shape[0] or min(batch_index) < 0:
        raise NodeFailed(f"{shape[0]} latents can't have the noises {list(batch_index)}")
    wanted = frozenset(batch_index)
    drawn: dict[int, torch.Tensor] = {}
    for number in range(max(wanted) + 1):
        item = torch.randn((1, *shape[1:]), generator=generator, dtype=dtype)
        if number in wanted:
            drawn[number] = item
    return torch.cat([drawn[number] for number in batch_index])


def sampler_generator(seed: int) -> torch.Tensor:
    """The start of a request's stream of sampler noise: a generator state, uint8 [n].

    It is seeded with seed + 1 (as ComfyUI does on a CPU), so that it isn't the initial noise again.
    """
    return torch.Generator().manual_seed((seed + 1) % SEED_RANGE).get_state()


class NoiseStream:
    """A request's sampler noise, from a generator state on; implements `sampling.base.Noise`.

    The state that it is made from is left as it is; `state()` gives the one to go on from.

    Args:
        is_channels_last: as `Sampler.draws_channels_last` says, of [B, C, H, W]. PyTorch then draws
            other values, not the same ones in another order.
    """

    def __init__(self, generator_state: torch.Tensor, *, is_channels_last: bool = False) -> None:
        self._before = generator_state
        self._is_channels_last = is_channels_last
        self._generator: torch.Generator | None = None

    def __call__(
        self, like: torch.Tensor, sigma_from: float = 0.0, sigma_to: float = 0.0
    ) -> torch.Tensor:
        """Standard normal values of the shape, dtype and device of `like`; advances the stream.

        The sigmas don't matter.
        """
        if self._generator is None:
            self._generator = torch.Generator()
            self._generator.set_state(self._before.cpu().contiguous())
        layout = torch.channels_last if self._is_channels_last else torch.contiguous_format
        drawn = torch.empty(like.shape, dtype=like.dtype, memory_format=layout)
        return drawn.normal_(generator=self._generator).to(like.device)

    def state(self) -> torch.Tensor:
        """The generator state now, uint8 [n]."""
        return self._before if self._generator is None else self._generator.get_state()
