"""Loaded models under a hard byte budget: least recently used ones go first.

There is one replica per model key. Refs of that key with other patches or options share it: the
patches are switched in place, which never reads the model again.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ...graph_import.handles import ModelKey, ModelRef
from ...graph_import.model import Model
from ..errors import OutOfMemory
from ..models.weight_files import check_unchanged
from ..protocol import ModelLoaded, PatchCoverage, PatchesSwitched
from .patches import Patches

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Replica:
    """A loaded model and what is on it."""

    model: Model
    patches: Patches

    @property
    def num_bytes(self) -> int:
        return self.model.num_bytes + self.patches.num_bytes


class ModelCache:
    """The models of one executor; used by its main thread only.

    Args:
        budget_bytes: what the loaded weights may hold together, with what patches put beside them.
            Before its first load a model's size is only estimated by its file (which may hold other
            models too, in a smaller dtype): room is made for that, and for the true size as soon as
            it is known.
        device: where models are loaded to.
        build: makes an unloaded `Model` of a ref.
    """

    def __init__(self, budget_bytes: int, device: str, build: Callable[[ModelRef], Model]) -> None:
        self._budget_bytes = budget_bytes
        self._device = device
        self._build = build
        self._replicas: OrderedDict[ModelKey, _Replica] = OrderedDict()
        self._known_bytes: dict[ModelKey, int] = {}
        self._loaded: list[ModelLoaded] = []
        self._switched: list[PatchesSwitched] = []

    def get(self, ref: ModelRef, check_cancelled: Callable[[], None]) -> Model:
        """The loaded model with the ref's patches on it and its options set (`Model.ref`).

        It is read from its file if it isn't resident.
        Raises:
            Cancelled: by `check_cancelled`, which is also called while reading and patching.
            ModelFileProblem: a file is gone, unusable or not the one that was looked at.
            PatchMatchesNothing: a patch is for another model. NodeFailed: it takes no patches.
            OutOfMemory: the model and its patches alone exceed the budget.
        """
        replica = self._replicas.get(ref.key) or self._load(ref, check_cancelled)
        self._replicas.move_to_end(ref.key)
        if replica.patches.current != ref.patches:
            self._switch(replica, ref, check_cancelled)
        replica.model.ref = ref
        replica.model.patches = list(ref.patches)
        return replica.model

    def resident(self) -> tuple[ModelKey, ...]:
        """The keys of all loaded models, least recently used first."""
        return tuple(self._replicas)

    def coverage(self, ref: ModelRef) -> tuple[PatchCoverage, ...]:
        """What the ref's patches changed, if they are on the model."""
        replica = self._replicas.get(ref.key)
        if replica is None or replica.patches.current != ref.patches:
            return ()
        return replica.patches.coverage

    def take_loaded(self) -> tuple[ModelLoaded, ...]:
        """What was read from files since the last call."""
        loaded, self._loaded = tuple(self._loaded), []
        return loaded

    def take_switched(self) -> tuple[PatchesSwitched, ...]:
        """Which models got other patches since the last call, in order."""
        switched, self._switched = tuple(self._switched), []
        return switched

    def drop_all(self) -> None:
        """Unload everything."""
        self._replicas.clear()
        gc.collect()
        log.info("models_dropped")

    @property
    def num_bytes(self) -> int:
        """Bytes of all loaded weights, with the patched ones beside them."""
        return sum(replica.num_bytes for replica in self._replicas.values())

    def _load(self, ref: ModelRef, check_cancelled: Callable[[], None]) -> _Replica:
        key = ref.key
        if key.user_class is None:  # a user's own file is found by its content
            for file in key.files:
                check_unchanged(file)
        start_s = time.perf_counter()
        model = self._build(ref)
        estimate = min(model.num_bytes, self._budget_bytes)
        self._make_room(key, self._known_bytes.get(key, estimate))
        model.load(self._device, check_cancelled)
        self._known_bytes[key] = model.num_bytes
        self._make_room(key, model.num_bytes)
        replica = self._replicas[key] = _Replica(model, Patches(key, model))
        seconds_s = time.perf_counter() - start_s
        self._loaded.append(ModelLoaded(key=key, seconds_s=seconds_s, num_bytes=model.num_bytes))
        log.info(
            "model_loaded",
            extra={"model": key.label(), "num_bytes": model.num_bytes, "load_s": seconds_s},
        )
        return replica

    def _switch(
        self, replica: _Replica, ref: ModelRef, check_cancelled: Callable[[], None]
    ) -> None:
        """Take the patches off and put the ref's on; reported even where that fails half way."""
        patches = replica.patches
        start_s = time.perf_counter()
        try:
            patches.take_off()
            if ref.patches:
                patches.put_on(
                    ref.patches,
                    lambda wanted_bytes: self._make_room(ref.key, wanted_bytes),
                    check_cancelled,
                )
        finally:
            seconds_s = time.perf_counter() - start_s
            self._switched.append(
                PatchesSwitched(key=ref.key, patches=patches.current, seconds_s=seconds_s)
            )
        log.info(
            "patches_switched",
            extra={
                "model": ref.key.label(),
                "num_patches": len(ref.patches),
                "num_bytes": patches.num_bytes,
                "switch_s": seconds_s,
            },
        )

    def _make_room(self, key: ModelKey, wanted_bytes: int) -> None:
        """Unload other models until `wanted_bytes` more fit for this one. Raises: OutOfMemory."""
        replica = self._replicas.get(key)
        own_bytes = wanted_bytes if replica is None else replica.num_bytes + wanted_bytes
        if own_bytes > self._budget_bytes:
            raise OutOfMemory(
                f"{key.label()} needs {own_bytes} bytes, "
                f"the executor's models may hold {self._budget_bytes}",
                wanted_bytes=own_bytes,
                budget_bytes=self._budget_bytes,
            )
        evicted = False
        while self.num_bytes + wanted_bytes > self._budget_bytes:
            victim = next(other for other in self._replicas if other != key)
            del self._replicas[victim]
            log.info("model_evicted", extra={"model": victim.label()})
            evicted = True
        if evicted:
            gc.collect()  # modules may hang in reference cycles; the budget is about real memory
