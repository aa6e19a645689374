"""How the autoencoder starts: with the colour of each 8 by 8 square going straight through it.

With random weights it first learns a grey blur, and colours only after thousands of steps. Here
three channels of the stream of features carry red, green and blue from the first convolution to the
last, and three latents are their sum and differences. What is left to learn is where the edges are.

A norm over three channels takes away how bright a picture is as a whole, unless two of the three
are constants, one above and one below 0. So they are where a norm reads what leaves a half of the
module.
"""

from __future__ import annotations

from typing import Any, Final

import torch

CHANNELS: Final = (0, 3, 6)  # red, green and blue in a stream of features, each in a norm's group
GROUP: Final = 3
CONSTANT: Final = 3.0
# Normed with its two constants a value v is about v / NORM_SCALE. SiLU of (v + NORM_BIAS) is then
# close to SLOPE * v + OFFSET.
NORM_SCALE: Final = 3.7
NORM_BIAS: Final = 2.0
SLOPE: Final = 1.06
OFFSET: Final = 1.78
# Latents of red, green and blue: brightness, red against blue, green against both.
OPPONENTS: Final = ((0.75, 0.75, 0.75), (0.9, 0.0, -0.9), (-0.9, 1.8, -0.9))


@torch.no_grad()
def lay_colour_path(vae: Any) -> None:
    """Set the weights of the path and let residual blocks start as their shortcuts."""
    for name, module in vae.named_modules():
        if name.endswith((".conv2", "to_out.0")):
            _silence(module)
        elif name.endswith(("conv_shortcut", "upsamplers.0.conv")):
            _pass(module)
        elif name.endswith("downsamplers.0.conv"):
            _average(module)
    encoder, decoder = vae.encoder, vae.decoder
    _pass(encoder.conv_in, inputs=(0, 1, 2))
    for half, last in ((encoder, encoder.down_blocks[3]), (decoder, decoder.up_blocks[3])):
        _make_constant(last.resnets[0].conv_shortcut)
        half.conv_norm_out.weight[::GROUP] = NORM_SCALE
        half.conv_norm_out.bias[::GROUP] = NORM_BIAS
    opponents = torch.tensor(OPPONENTS)
    _combine(encoder.conv_out, opponents / SLOPE, OFFSET)
    _combine(decoder.conv_out, torch.eye(3) / SLOPE, OFFSET)
    _pass(decoder.conv_in, inputs=(0, 1, 2), matrix=torch.linalg.inv(opponents))
    for conv in (vae.quant_conv, vae.post_quant_conv):
        conv.weight.copy_(torch.eye(len(conv.weight))[:, :, None, None])
        conv.bias.zero_()


def _silence(module: Any) -> None:
    module.weight.zero_()
    module.bias.zero_()


def _pass(
    conv: Any, *, inputs: tuple[int, ...] = CHANNELS, matrix: torch.Tensor | None = None
) -> None:
    """The colours go through the middle of the kernel."""
    middle = conv.weight.shape[-1] // 2
    rows, columns = list(CHANNELS), list(inputs)
    conv.weight[rows] = 0.0
    conv.bias[rows] = 0.0
    weights = torch.eye(3) if matrix is None else matrix
    for row, line in zip(rows, weights, strict=True):
        conv.weight[row, columns, middle, middle] = line


def _average(conv: Any) -> None:
    """The colours of two by two pixels become one."""
    rows = list(CHANNELS)
    conv.weight[rows] = 0.0
    conv.bias[rows] = 0.0
    for row in rows:
        conv.weight[row, row, :2, :2] = 0.25


def _make_constant(conv: Any) -> None:
    for offset, value in ((1, CONSTANT), (2, -CONSTANT)):
        conv.weight[offset::GROUP] = 0.0
        conv.bias[offset::GROUP] = value


def _combine(conv: Any, matrix: torch.Tensor, offset: float) -> None:
    """The first three outputs are combinations of the normed colours."""
    conv.weight[:3] = 0.0
    columns = list(CHANNELS)
    for row, line in enumerate(matrix):
        conv.weight[row, columns, 1, 1] = line
        conv.bias[row] = -offset * line.sum()
