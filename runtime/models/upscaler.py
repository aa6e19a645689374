"""Models that make pictures larger, of whichever architecture `spandrel` recognises.

spandrel is optional (`pip install nodeloom[upscale]`): it brings torchvision, which must match the
installed torch. Source: design notes on models, section 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...graph_import import types
from ...graph_import.model import Model
from ..errors import NodeFailed
from .checkpoint import Check, count_bytes, estimate_bytes, no_check, read_weights
from .weight_files import problem

PREFIXES = ("",)


class Upscaler(Model):
    """Input and output: image float32 [1, C, H, W], 0 to 1; the output may leave that range."""

    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("image", types.IMAGE)
        self.add_output("image", types.IMAGE)

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the model, float32. Raises: NodeFailed: spandrel is not installed."""
        loader = _spandrel()
        file = self.ref.key.file
        weights = read_weights(file, PREFIXES, check)
        own = {
            name: tensor.to(torch.float32, copy=True) for name, tensor in weights.tensors.items()
        }
        try:
            descriptor = loader.ModelLoader().load_from_state_dict(own)
        except (ValueError, KeyError, RuntimeError, loader.UnsupportedModelError) as error:
            raise problem(file.path, f"spandrel can't use it: {error}") from error
        if not isinstance(descriptor, loader.ImageModelDescriptor):
            raise problem(file.path, "this model does not make one picture of one picture")
        self._descriptor = descriptor.to(device).eval()
        self._device = device
        self._num_bytes = count_bytes(descriptor.model)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the file's header lets expect."""
        if self._num_bytes is None:
            return estimate_bytes(self.ref.key.file, PREFIXES)
        return self._num_bytes

    @torch.no_grad()
    def execute(self, **inputs: object) -> Mapping[str, object]:
        """One picture, larger. Raises: NodeFailed: it has another number of channels."""
        image = inputs["image"]
        if not isinstance(image, torch.Tensor):
            raise NodeFailed("an upscaler takes a picture")
        channels = self._descriptor.input_channels
        if image.shape[1] != channels:
            raise NodeFailed(f"this upscaler takes {channels} channels, not {image.shape[1]}")
        upscaled: torch.Tensor = self._descriptor(image.to(self._device))
        return {"image": upscaled.to("cpu", torch.float32)}


def _spandrel() -> Any:
    """The package, imported when first needed."""
    try:
        import spandrel
    except ImportError as error:
        raise NodeFailed(
            "upscale models need the package spandrel, and torchvision to match torch: "
            f"pip install 'nodeloom[upscale]' ({error})"
        ) from error
    return spandrel
