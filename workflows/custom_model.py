"""A model of one's own in thirty lines: unsharp masking of a picture."""

from collections.abc import Mapping
from typing import Any

from nodeloom import Image, Model, workflow


class Sharpen(Model):
    """Adds what a picture has beyond its own blur over `radius` pixels to each side."""

    def setup_io(self) -> None:
        self.add_input("image", "IMAGE")
        self.add_input("amount", float)
        self.add_output("image", "IMAGE")

    def load(self, device: str, check: object = None) -> None:
        import torch

        self._radius = self.settings["radius"]
        width = 2 * self._radius + 1
        self._kernel = torch.full((3, 1, width, width), 1.0 / width**2, device=device)

    def execute(self, **inputs: Any) -> Mapping[str, object]:
        from torch.nn.functional import conv2d, pad

        pixels = inputs["image"].movedim(-1, 1)
        padded = pad(pixels, [self._radius] * 4, mode="replicate")
        details = pixels - conv2d(padded, self._kernel, groups=3)
        sharpened = pixels + inputs["amount"] * details
        return {"image": sharpened.clamp(0.0, 1.0).movedim(1, -1)}


@workflow
def sharpen(image: Image, amount: float = 0.5) -> Any:
    return Sharpen(radius=1)(image, amount)
