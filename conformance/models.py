"""models/*.safetensors: one forward pass of each kind of model that we have.

The checkpoints are ours with seed 0, the same bytes as the recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from nodeloom.graph_import.catalog import CheckpointInfo
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.models.headers import DENOISER_PREFIX, inspect_checkpoint, inspect_part
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.sd15.denoiser import LATENT_CHANNELS as UNET_LATENTS
from nodeloom.runtime.models.tiny import TINY, TINY_INPAINT, vae_spec, write_spec, write_tiny_sd15
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet
from nodeloom.runtime.models.tiny_sd3 import LATENT_CHANNELS, MmditSize, mmdit_spec
from nodeloom.runtime.models.weight_spec import Spec
from nodeloom.runtime.values import CallResiduals
from safetensors.torch import load_file

from .case import Case, Outcome, close, worst

TOLERANCE: Final = 1e-4  # of the reference's deviation
SD3: Final = MmditSize(num_blocks=2, context=256, pooled=192, positions=32)
SD35_MEDIUM: Final = MmditSize(
    num_blocks=2, context=256, pooled=192, positions=32, has_norms=True, dual_blocks=(0,)
)

Golden = Mapping[str, torch.Tensor]
Tensors = Mapping[str, torch.Tensor]


@dataclass(slots=True, frozen=True)
class Recorded:
    """One golden file: the model's file, and what the product makes of the golden's inputs."""

    write: Callable[[Path], None]
    inspect: Callable[[Path], CheckpointInfo]
    role: Role
    call: Callable[[Model, Golden], Tensors]


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each golden file of a model that we have, where the file is there."""
    for name, recorded in RECORDED.items():
        path = goldens / "models" / f"{name}.safetensors"
        if path.exists():
            yield Case(f"models/{name}", partial(_compared, path, recorded))


def _compared(path: Path, recorded: Recorded) -> Outcome:
    golden = load_file(path)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        recorded.write(file)
        info = recorded.inspect(file)
        key = ModelKey(role=recorded.role, family=info.family, file=info.file, dtype="float32")
        model = build(ModelRef(key=key))
        model.load("cpu")
    ours = recorded.call(model, golden)
    return worst([_relative(tensor, golden[name]) for name, tensor in ours.items()])


def _relative(ours: torch.Tensor, recorded: torch.Tensor) -> Outcome:
    deviation = recorded.double().std()
    return close(ours.double() / deviation, recorded.double() / deviation, TOLERANCE)


def _rows(golden: Golden, sigmas: list[float]) -> list[dict[str, Any]]:
    """A call of a denoiser or a ControlNet for each row, with the golden's inputs unscaled."""
    names = {"x": "x", "context": "context", "y": "pooled", "hint": "hint"}
    return [
        {
            "sigma": sigma,
            **{own: golden[name][row : row + 1] for name, own in names.items() if name in golden},
        }
        for row, sigma in enumerate(sigmas)
    ]


def _unet_rows(golden: Golden) -> list[dict[str, Any]]:
    sampling = family("sd15").model_sampling
    rows = _rows(golden, [sampling.sigmas[int(timestep)] for timestep in golden["t"]])
    return [_split(row, sampling.input_scale(row["sigma"])) for row in rows]


def _split(row: dict[str, Any], input_scale: float) -> dict[str, Any]:
    """The latents unscaled; the channels behind them are an inpainting UNet's own."""
    latents, extra = row["x"][:, :UNET_LATENTS], row["x"][:, UNET_LATENTS:]
    more = {"extra_channels": lambda: extra} if extra.shape[1] else {}
    return {**row, **more, "x": latents / input_scale}


def _sd3_rows(golden: Golden) -> list[dict[str, Any]]:
    return _rows(golden, [float(timestep) / 1000.0 for timestep in golden["t"]])


def _prediction(
    rows: Callable[[Golden], list[dict[str, Any]]], model: Model, golden: Golden
) -> Tensors:
    """What the network gave: noise, or the flow's velocity."""
    calls = rows(golden)
    given: list[Any] = [result["denoised"] for result in model.execute_batch(calls)]
    parts = [(c["x"] - one) / c["sigma"] for c, one in zip(calls, given, strict=True)]
    return {"out": torch.cat(parts)}


def _residuals(model: Model, golden: Golden) -> Tensors:
    given = [result["residuals"] for result in model.execute_batch(_unet_rows(golden))]
    blocks = [one.blocks for one in given if isinstance(one, CallResiduals)]
    *down, middle = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return {"out": middle, **{f"down.{index}": tensor for index, tensor in enumerate(down)}}


def _autoencoded(model: Model, golden: Golden) -> Tensors:
    """Pictures as the recorded classes give them, -1 to 1; ours are clamped, so they are, too."""
    pixels = (golden["pixels"].movedim(1, 3) + 1.0) / 2.0
    image, latent = (
        model.execute(samples=golden["z"])["image"],
        model.execute(pixels=pixels)["latent"],
    )
    if not isinstance(image, torch.Tensor) or not isinstance(latent, torch.Tensor):
        raise TypeError("a VAE gave no tensors")
    inside = golden["out"].abs() <= 1.0
    decoded = torch.where(inside, image.movedim(3, 1) * 2.0 - 1.0, golden["out"])
    return {"out": decoded, "encoded": latent}


def _sd3_writer(size: MmditSize) -> Callable[[Path], None]:
    """A checkpoint's denoiser: its prefix decides the weights, too."""
    spec = Spec({DENOISER_PREFIX + name: entry for name, entry in mmdit_spec(size).items()})
    return lambda path: write_spec(path, spec, 0)


def _write_vae(path: Path) -> None:
    spec = vae_spec(TINY.vae, latent_channels=LATENT_CHANNELS, has_quant_convs=False)
    write_spec(path, spec, 0)


_UNET = partial(_prediction, _unet_rows)
_SD3 = partial(_prediction, _sd3_rows)
RECORDED: Final[Mapping[str, Recorded]] = {
    "unet_sd15_inpaint": Recorded(
        partial(write_tiny_sd15, size=TINY_INPAINT), inspect_checkpoint, Role.DENOISER, _UNET
    ),
    "unet_sd15": Recorded(write_tiny_sd15, inspect_checkpoint, Role.DENOISER, _UNET),
    "controlnet_sd15": Recorded(write_tiny_controlnet, inspect_part, Role.CONTROLNET, _residuals),
    "sd3": Recorded(_sd3_writer(SD3), inspect_checkpoint, Role.DENOISER, _SD3),
    "sd35_medium": Recorded(_sd3_writer(SD35_MEDIUM), inspect_checkpoint, Role.DENOISER, _SD3),
    "vae_sd": Recorded(
        lambda path: write_spec(path, vae_spec(TINY.vae), 0), inspect_part, Role.VAE, _autoencoded
    ),
    "vae_flux": Recorded(_write_vae, inspect_part, Role.VAE, _autoencoded),
}
