"""The decoders that an executor has loaded for previews, by name; found in folders of `vae_approx`.

A preview never fails a request: a file that can't be used is named in the log, once, and does
without until it changes.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from ...graph_import.errors import ModelFileProblem
from ...graph_import.families import Family
from ...graph_import.handles import FileIdentity
from ..models.taesd import TinyDecoder
from ..models.weight_files import identify, problem

log = logging.getLogger(__name__)

# Pickled files are looked for as well, so that the log says why they are not used.
SUFFIXES: Final = (".safetensors", ".pth")


@dataclass(slots=True)
class _Known:
    """A file as it was when looked at (None: there was none), and its decoder if it is usable."""

    file: FileIdentity | None
    decoder: TinyDecoder | None


class PreviewDecoders:
    """Loads decoders at their first use, and again when their files change.

    Used by an executor's main thread only. What they hold, 5 MB each and `taesd.MAX_FILE_BYTES` at
    most, does not count in the budget of models.

    Args:
        folders: where the files may lie; the first one that has a file wins.
        device: where decoders are loaded to.
    """

    def __init__(self, folders: tuple[Path, ...], device: str) -> None:
        self._folders = folders
        self._device = device
        self._known: dict[str, _Known] = {}

    def decode(self, latents: torch.Tensor, family: Family) -> torch.Tensor | None:
        """Pictures [B, H, W, 3] of latents in the denoiser's space; None: no usable decoder."""
        name = family.taesd_decoder_name
        file = self._find(name)
        known = self._known.get(name)
        if known is None or known.file != file:
            known = self._known[name] = _Known(file, self._load(name, file, family))
        if known.decoder is None:
            return None
        try:
            return known.decoder.decode(latents)
        except Exception as trouble:  # noqa: BLE001  (most likely no memory: then do without)
            known.decoder = None
            log.warning("preview_decoder_failed", extra={"decoder": name, "reason": str(trouble)})
            return None

    def drop_all(self) -> None:
        """Forget everything, unusable files too."""
        self._known.clear()

    def _find(self, name: str) -> FileIdentity | None:
        for suffix in SUFFIXES:
            for folder in self._folders:
                path = folder / (name + suffix)
                if os.path.isfile(path):
                    try:
                        return identify(path)
                    except ModelFileProblem:  # gone between the two calls
                        continue
        return None

    def _load(self, name: str, file: FileIdentity | None, family: Family) -> TinyDecoder | None:
        if file is None:
            log.warning("preview_decoder_missing", extra={"decoder": name + SUFFIXES[0]})
            return None
        try:
            decoder = TinyDecoder.load(file, self._device)
            if decoder.latent_channels != family.latent_channels:
                raise problem(
                    file.path,
                    f"it decodes {decoder.latent_channels} channels, "
                    f"{family.name} has {family.latent_channels}",
                )
        except Exception as trouble:  # noqa: BLE001  (whatever a file or its loader does)
            log.warning("preview_decoder_refused", extra={"decoder": name, "reason": str(trouble)})
            return None
        log.info("preview_decoder_loaded", extra={"file": file.path})
        return decoder
