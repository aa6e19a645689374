"""LoRA files with random values for our small checkpoints, in every format that trainers write."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeloom.runtime.models.ldm_unet import unet_name
from nodeloom.runtime.models.tiny import TINY, Sd15Size, text_spec, unet_spec
from nodeloom.runtime.models.weight_spec import Spec, materialise
from safetensors.numpy import save_file

KINDS: Final = ("lora", "locon", "loha", "lokr", "dora")
RANK: Final = 4
ALPHA: Final = 2.0
STD: Final = 0.4
LOKR_FACTOR: Final = 4
CONVOLUTIONS: Final = (".conv1.", ".conv2.", ".conv.", ".conv_shortcut.")

Shape = tuple[int, ...]


def write_lora(path: Path, kind: str = "lora", *, seed: int = 0, size: Sd15Size = TINY) -> Path:
    """A kohya file for a checkpoint of `size`: attention only, or (LyCORIS) convolutions too.

    Of the sizes and with the bytes of the goldens' LoRAs, if `size` is that of their checkpoint.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(materialise(lora_spec(kind, size), seed), path)
    return path


def lora_spec(kind: str, size: Sd15Size = TINY) -> Spec:
    """Deltas of about a tenth of a weight."""
    spec = Spec()
    for name, shape in targets(size, with_convolutions=kind in ("locon", "loha", "lokr")):
        _add(spec, kind, name, shape)
    return spec


def targets(size: Sd15Size, *, with_convolutions: bool) -> Iterator[tuple[str, Shape]]:
    """(kohya's name, shape) of the weights that a LoRA is trained for."""
    for original, (shape, _, _) in unet_spec(size.unet).items():
        name = unet_name(original, size.unet.num_resnets)
        is_attention = ".transformer_blocks." in name or ".proj_in" in name or ".proj_out" in name
        is_convolution = any(part in name for part in CONVOLUTIONS)
        if not name.endswith(".weight") or len(shape) < 2:
            continue
        if is_attention or (with_convolutions and is_convolution):
            yield "lora_unet_" + name.removesuffix(".weight").replace(".", "_"), shape
    for name, (shape, _, _) in text_spec(size.text).items():
        if name.endswith(".weight") and (".self_attn." in name or ".mlp." in name):
            yield "lora_te_" + name.removesuffix(".weight").replace(".", "_"), shape


def _add(spec: Spec, kind: str, name: str, shape: Shape) -> None:
    outer, inner, kernel = shape[0], shape[1], shape[2:]
    fan = inner * math.prod(kernel)
    spread = STD * (3.0 / fan) ** 0.5
    ones = (1, 1) if kernel else ()
    if kind != "lokr" or not (outer % LOKR_FACTOR or inner % LOKR_FACTOR):
        spec[f"{name}.alpha"] = ((), ALPHA, 0.0)
    if kind in ("lora", "locon", "dora"):
        spec[f"{name}.lora_up.weight"] = ((outer, RANK, *ones), 0.0, 1.0)
        spec[f"{name}.lora_down.weight"] = ((RANK, inner, *kernel), 0.0, spread)
    if kind == "dora":
        spec[f"{name}.dora_scale"] = ((outer, 1, *ones), 1.0, 0.1)
    if kind == "loha":
        for number, part in (("1", spread), ("2", 1.0)):
            spec[f"{name}.hada_w{number}_a"] = ((outer, RANK), 0.0, 1.0)
            spec[f"{name}.hada_w{number}_b"] = ((RANK, fan), 0.0, part)
    if kind == "lokr" and f"{name}.alpha" in spec:
        factor = LOKR_FACTOR
        spec[f"{name}.lokr_w1"] = ((factor, factor), 0.0, 1.0)
        spec[f"{name}.lokr_w2_a"] = ((outer // factor, RANK), 0.0, 1.0)
        spec[f"{name}.lokr_w2_b"] = (
            (RANK, inner // factor * math.prod(kernel or (1,))),
            0.0,
            spread,
        )
