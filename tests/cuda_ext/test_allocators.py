"""Both allocators against a plain model: a dict of the blocks that are taken."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from nodeloom.cuda_ext._native import (
    UNIT_BYTES,
    Allocator,
    ArenaFull,
    BestFitAllocator,
    BuddyAllocator,
)

MAKERS: list[Callable[[int], Allocator]] = [BuddyAllocator, BestFitAllocator]


@pytest.fixture(params=MAKERS, ids=["buddy", "best_fit"])
def make(request: pytest.FixtureRequest) -> Callable[[int], Allocator]:
    maker: Callable[[int], Allocator] = request.param
    return maker


def in_units(nbytes: int) -> int:
    return -(-nbytes // UNIT_BYTES) * UNIT_BYTES


def in_buddies(nbytes: int) -> int:
    size = UNIT_BYTES
    while size < nbytes:
        size *= 2
    return size


class AllocatorMachine(RuleBasedStateMachine):
    """Any order of alloc and free, in arenas of any size; after every step the model must agree."""

    make: Callable[[int], Allocator]
    rounded: Callable[[int], int]
    blocks: Bundle[int] = Bundle("blocks")

    @initialize(capacity_bytes=st.integers(UNIT_BYTES, 70 * UNIT_BYTES))
    def start(self, capacity_bytes: int) -> None:
        self.allocator = type(self).make(capacity_bytes)
        self.capacity_bytes = capacity_bytes // UNIT_BYTES * UNIT_BYTES
        self.empty_largest_bytes = self.allocator.largest_free_bytes
        self.taken: dict[int, int] = {}  # offset -> bytes that the block must have

    def view(self) -> tuple[int, int, int, int]:
        a = self.allocator
        return a.used_bytes, a.capacity_bytes, a.largest_free_bytes, a.num_blocks

    @rule(target=blocks, nbytes=st.integers(1, 12 * UNIT_BYTES))
    def alloc(self, nbytes: int) -> object:
        size = type(self).rounded(nbytes)
        before = self.view()
        if size > self.allocator.largest_free_bytes:
            with pytest.raises(ArenaFull, match=str(nbytes)):
                self.allocator.alloc(nbytes)
            assert self.view() == before
            return multiple()
        offset = self.allocator.alloc(nbytes)
        assert offset not in self.taken
        self.taken[offset] = size
        return offset

    @rule(offset=consumes(blocks))
    def free(self, offset: int) -> None:
        self.allocator.free(offset)
        del self.taken[offset]
        before = self.view()
        with pytest.raises(ValueError, match=f"offset {offset}"):
            self.allocator.free(offset)
        assert self.view() == before

    @rule(offset=st.integers(0, 80 * UNIT_BYTES))
    def free_unknown(self, offset: int) -> None:
        if offset not in self.taken:
            before = self.view()
            with pytest.raises(ValueError, match="no block starts"):
                self.allocator.free(offset)
            assert self.view() == before

    @invariant()
    def blocks_are_aligned_apart_and_inside(self) -> None:
        spans = sorted((offset, offset + size) for offset, size in self.taken.items())
        assert all(start % UNIT_BYTES == 0 for start, _ in spans)
        assert all(end <= following for (_, end), (following, _) in pairwise(spans))
        assert all(start >= 0 and end <= self.capacity_bytes for start, end in spans)

    @invariant()
    def counts_agree(self) -> None:
        assert self.allocator.used_bytes == sum(self.taken.values())
        assert self.allocator.num_blocks == len(self.taken)
        assert self.allocator.capacity_bytes == self.capacity_bytes

    def gaps_bytes(self) -> list[int]:
        """Sizes of the ranges between the taken blocks."""
        edges = [0]
        for offset in sorted(self.taken):
            edges += [offset, offset + self.taken[offset]]
        edges.append(self.capacity_bytes)
        return [end - start for start, end in zip(edges[::2], edges[1::2], strict=True)]

    def teardown(self) -> None:
        """Freeing everything gives back the whole arena, however it was cut up."""
        for offset in self.taken:
            self.allocator.free(offset)
        assert self.allocator.used_bytes == 0
        assert self.allocator.largest_free_bytes == self.empty_largest_bytes


class BuddyMachine(AllocatorMachine):
    make = BuddyAllocator
    rounded = staticmethod(in_buddies)

    @invariant()
    def blocks_lie_at_multiples_of_their_size(self) -> None:
        assert all(offset % size == 0 for offset, size in self.taken.items())

    @invariant()
    def free_buddies_have_merged(self) -> None:
        largest = self.allocator.largest_free_bytes
        assert largest == 0 or largest.bit_count() == 1
        spans = [range(offset, offset + size) for offset, size in self.taken.items()]
        sizes = [UNIT_BYTES << order for order in range(self.capacity_bytes.bit_length())]
        whole = [
            size
            for size in sizes
            for start in range(0, self.capacity_bytes - size + 1, size)
            if not any(span.start < start + size and start < span.stop for span in spans)
        ]
        assert largest == max(whole, default=0)


class BestFitMachine(AllocatorMachine):
    make = BestFitAllocator
    rounded = staticmethod(in_units)

    @invariant()
    def the_largest_gap_is_one_free_range(self) -> None:
        assert self.allocator.largest_free_bytes == max(self.gaps_bytes())


@pytest.mark.parametrize("machine", [BuddyMachine, BestFitMachine])
def test_any_order_of_alloc_and_free_agrees_with_the_model(
    machine: type[AllocatorMachine],
) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=80, stateful_step_count=50, deadline=None)
    )


def test_best_fit_takes_the_smallest_hole_that_holds_the_request() -> None:
    allocator = BestFitAllocator(20 * UNIT_BYTES)
    large, _, small, _ = (allocator.alloc(n * UNIT_BYTES) for n in (6, 1, 2, 1))
    allocator.free(large)
    allocator.free(small)
    assert allocator.alloc(2 * UNIT_BYTES) == small
    assert allocator.alloc(3 * UNIT_BYTES) == large


def test_low_addresses_are_used_first(make: Callable[[int], Allocator]) -> None:
    allocator = make(64 * UNIT_BYTES)
    offsets = [allocator.alloc(UNIT_BYTES) for _ in range(8)]
    assert offsets == [n * UNIT_BYTES for n in range(8)]
    for offset in (offsets[6], offsets[2]):
        allocator.free(offset)
    assert allocator.alloc(UNIT_BYTES) == offsets[2]


def test_a_whole_arena_is_one_block(make: Callable[[int], Allocator]) -> None:
    allocator = make(64 * UNIT_BYTES)
    assert allocator.alloc(64 * UNIT_BYTES) == 0
    with pytest.raises(ArenaFull):
        allocator.alloc(1)
    allocator.free(0)
    assert allocator.largest_free_bytes == 64 * UNIT_BYTES


@pytest.mark.parametrize("nbytes", [64 * UNIT_BYTES + 1, 2**63, 2**64 - 1])
def test_a_request_beyond_the_arena_is_full_and_does_not_wrap_around(
    make: Callable[[int], Allocator], nbytes: int
) -> None:
    allocator = make(64 * UNIT_BYTES)
    with pytest.raises(ArenaFull):
        allocator.alloc(nbytes)
    assert allocator.used_bytes == 0


def test_sizes_that_make_no_sense_are_refused(make: Callable[[int], Allocator]) -> None:
    for capacity_bytes in (0, UNIT_BYTES - 1, 2**63):
        with pytest.raises(ValueError, match="an arena can't have"):
            make(capacity_bytes)
    allocator = make(UNIT_BYTES)
    with pytest.raises(ValueError, match="0 bytes"):
        allocator.alloc(0)
    with pytest.raises(TypeError):
        allocator.alloc(-1)


def test_the_largest_arena_that_is_accepted_works(make: Callable[[int], Allocator]) -> None:
    allocator = make(2**63 - 1)
    offset = allocator.alloc(2**40)
    assert allocator.used_bytes == 2**40
    allocator.free(offset)
    assert allocator.used_bytes == 0
