"""The typed face of csrc/native.cpp. All sizes and offsets are in bytes."""

ABI: int
COMPILER: str
UNIT_BYTES: int

class ArenaFull(RuntimeError):
    """No free range holds the request now; the allocator is as it was before the call."""

class Allocator:
    """Hands out ranges of an arena: touches no memory, takes no lock (one owner, under the GIL)."""

    def alloc(self, nbytes: int) -> int:
        """Take a block of at least `nbytes`; its offset, a multiple of UNIT_BYTES.

        Raises: ArenaFull; ValueError: zero bytes; TypeError: below zero.
        """

    def free(self, offset: int) -> None:
        """Give back the block at `offset`. Raises: ValueError: no block starts there."""

    @property
    def used_bytes(self) -> int:
        """Held by blocks, rounding included."""

    @property
    def capacity_bytes(self) -> int:
        """All of it, in whole units."""

    @property
    def largest_free_bytes(self) -> int:
        """The largest `alloc` that would succeed now."""

    @property
    def num_blocks(self) -> int:
        """Blocks taken and not given back."""

class BuddyAllocator(Allocator):
    """Powers of two that merge with their buddies, as in the papers.

    Size the arena at 1.6 times what has to fit: a third is lost to rounding.
    """

    def __init__(self, capacity_bytes: int) -> None: ...

class BestFitAllocator(Allocator):
    """The smallest free range that fits; neighbours coalesce at once."""

    def __init__(self, capacity_bytes: int) -> None: ...
