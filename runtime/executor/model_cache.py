"""Loaded models under a hard byte budget: least recently used ones go first.

A replica stands for a whole `ModelRef`. That equals one replica per model key as long as refs
carry no patches and no options, and refs that do are refused here.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from ...graph_import.handles import ModelKey, ModelRef
from ...graph_import.model import Model
from ..errors import NodeFailed, OutOfMemory
from ..models.weight_files import check_unchanged
from ..protocol import ModelLoaded

log = logging.getLogger(__name__)


class ModelCache:
    """The models of one executor; used by its main thread only.

    Args:
        budget_bytes: what the loaded weights may hold together. Before its first load a model's
            size is only estimated by its file (which may hold other models too, in a smaller
            dtype): room is made for that, and for the true size as soon as it is known.
        device: where models are loaded to.
        build: makes an unloaded `Model` of a ref.
    """

    def __init__(self, budget_bytes: int, device: str, build: Callable[[ModelRef], Model]) -> None:
        self._budget_bytes = budget_bytes
        self._device = device
        self._build = build
        self._models: OrderedDict[ModelRef, Model] = OrderedDict()
        self._known_bytes: dict[ModelRef, int] = {}
        self._loaded: list[ModelLoaded] = []

    def get(self, ref: ModelRef, check_cancelled: Callable[[], None]) -> Model:
        """The loaded model, read from its file if it isn't resident.

        Raises:
            Cancelled: by `check_cancelled`, which is also called while reading.
            NodeFailed: the ref has patches or options, which no model applies yet.
            ModelFileProblem: the file is gone, unusable or not the one that was looked at.
            OutOfMemory: the model alone exceeds the budget.
        """
        model = self._models.get(ref)
        if model is None:
            model = self._load(ref, check_cancelled)
        self._models.move_to_end(ref)
        return model

    def resident(self) -> tuple[ModelKey, ...]:
        """The keys of all loaded models, least recently used first."""
        return tuple(ref.key for ref in self._models)

    def take_loaded(self) -> tuple[ModelLoaded, ...]:
        """What was read from files since the last call."""
        loaded, self._loaded = tuple(self._loaded), []
        return loaded

    def drop_all(self) -> None:
        """Unload everything."""
        self._models.clear()
        gc.collect()
        log.info("models_dropped")

    @property
    def num_bytes(self) -> int:
        """Bytes of all loaded weights."""
        return sum(model.num_bytes for model in self._models.values())

    def _load(self, ref: ModelRef, check_cancelled: Callable[[], None]) -> Model:
        if ref.patches or ref.options:
            raise NodeFailed(f"{ref.key.label()}: patches and options are not supported yet")
        check_unchanged(ref.key.file)
        start_s = time.perf_counter()
        model = self._build(ref)
        estimate = min(model.num_bytes, self._budget_bytes)
        self._make_room(ref, self._known_bytes.get(ref, estimate))
        model.load(self._device, check_cancelled)
        self._known_bytes[ref] = model.num_bytes
        self._make_room(ref, model.num_bytes)
        self._models[ref] = model
        seconds_s = time.perf_counter() - start_s
        self._loaded.append(
            ModelLoaded(key=ref.key, seconds_s=seconds_s, num_bytes=model.num_bytes)
        )
        log.info(
            "model_loaded",
            extra={"model": ref.key.label(), "num_bytes": model.num_bytes, "load_s": seconds_s},
        )
        return model

    def _make_room(self, ref: ModelRef, wanted_bytes: int) -> None:
        """Unload until `wanted_bytes` more fit. Raises: OutOfMemory."""
        if wanted_bytes > self._budget_bytes:
            raise OutOfMemory(
                f"{ref.key.label()} needs {wanted_bytes} bytes, "
                f"the executor's models may hold {self._budget_bytes}",
                wanted_bytes=wanted_bytes,
                budget_bytes=self._budget_bytes,
            )
        evicted = False
        while self.num_bytes + wanted_bytes > self._budget_bytes:
            victim, _ = self._models.popitem(last=False)
            log.info("model_evicted", extra={"model": victim.key.label()})
            evicted = True
        if evicted:
            gc.collect()  # modules may hang in reference cycles; the budget is about real memory
