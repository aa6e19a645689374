"""The checkpoint folder of `kit.plant`: which tensors are in files, and who may delete them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from nodeloom.runtime.data_plane.checkpoints import file_name
from nodeloom.runtime.protocol import TensorKey
from nodeloom.runtime.scheduler.actions import DropCheckpoints, SweepCheckpoints

NEVER = (False,)
ALWAYS = (True,)


class CheckpointFiles:
    """Files by name.

    Args:
        written: whether there is room for an executor's first, second ... tensor; then anew.
    """

    def __init__(self, written: Sequence[bool] = NEVER) -> None:
        self.names: set[str] = set()
        self.vanished: set[str] = set()
        self._written = written

    def save(self, key: TensorKey) -> str | None:
        """An executor writes a tensor's file, if there is room."""
        if not self._written[key.tensor_id % len(self._written)]:
            return None
        name = file_name(key)
        assert name not in self.names
        self.names.add(name)
        return name

    def has(self, key: TensorKey) -> bool:
        """Whether a tensor can be read."""
        return file_name(key) in self.names

    def had(self, key: TensorKey) -> bool:
        """Whether a tensor could be read if its file had not vanished, which nobody can know."""
        return self.has(key) or file_name(key) in self.vanished

    def vanish(self, name: str) -> None:
        """Somebody empties the folder."""
        self.names.remove(name)
        self.vanished.add(name)

    def release(self, keys: Iterable[TensorKey]) -> None:
        """An executor forgets tensors of its own."""
        self.names.difference_update(map(file_name, keys))

    def obey(self, action: DropCheckpoints | SweepCheckpoints, in_use: Iterable[TensorKey]) -> None:
        """Delete files of dead executors; none that a batch may still read, and none twice."""
        doomed: Collection[str]
        if isinstance(action, DropCheckpoints):
            doomed = action.names
            assert len(set(doomed)) == len(doomed)
            assert self.names | self.vanished >= set(doomed), "deleted before, or never there"
        else:
            assert self.names | self.vanished >= set(action.kept)
            start = f"{action.executor}.{action.incarnation}."
            doomed = {name for name in self.names if name.startswith(start)} - set(action.kept)
        assert set(map(file_name, in_use)).isdisjoint(doomed), "a file that is read is deleted"
        self.names.difference_update(doomed)
        self.vanished.difference_update(doomed)
