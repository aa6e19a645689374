"""Tiles: the whole is covered, a local model gives what it gives untiled, memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kit.checkpoints import load_model
from kit.op_calls import run_op
from nodeloom.graph_import.handles import FileIdentity, ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.errors import Cancelled, NodeFailed
from nodeloom.runtime.models.tiny import write_tiny_sd15
from nodeloom.runtime.ops.tiles import Tiling, run_tiled, tile_spans
from nodeloom.runtime.values import Latent

NOTHING = ModelRef(
    key=ModelKey(
        role=Role.VAE,
        family="test",
        file=FileIdentity(path="/none", size_bytes=0, mtime_ns=0),
        dtype="float32",
    )
)


class PlainModel(Model):
    """Enlarges by repeating pixels, shrinks by means: no pixel looks beyond its own cell.

    Args:
        most_pixels: what the device's memory holds at once.
    """

    def __init__(self, factor: int = 8, most_pixels: int | None = None) -> None:
        super().__init__(NOTHING)
        self.factor = factor
        self.most_pixels = most_pixels
        self.seen: list[int] = []

    def setup_io(self) -> None:
        self.add_output("image", "IMAGE")

    def load(self, device: str, check: Callable[[], None] = lambda: None) -> None:
        raise NotImplementedError

    def execute(self, **inputs: object) -> Mapping[str, object]:
        ((name, tensor),) = inputs.items()
        assert isinstance(tensor, torch.Tensor)
        if name == "pixels":
            self.seen.append(tensor.shape[1] * tensor.shape[2])
            return {"latent": torch.nn.functional.avg_pool2d(tensor.movedim(-1, 1), self.factor)}
        num_pixels = tensor.shape[-1] * tensor.shape[-2]
        if self.most_pixels is not None and num_pixels > self.most_pixels:
            raise torch.OutOfMemoryError("the device is full")
        self.seen.append(num_pixels)
        grown = tensor.repeat_interleave(self.factor, -1).repeat_interleave(self.factor, -2)
        return {"image": grown if name == "image" else grown.movedim(1, -1)}


def doubled(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.repeat_interleave(2, -1).repeat_interleave(2, -2)


@given(length=st.integers(1, 400), side=st.integers(1, 80), overlap=st.integers(0, 20))
def test_tiles_cover_a_side_and_overlap(length: int, side: int, overlap: int) -> None:
    overlap = min(overlap, side // 4)
    spans = list(tile_spans(length, Tiling(side=side, overlap=overlap)))
    assert spans[0][0] == 0
    assert sum(spans[-1]) == length
    assert all(0 < size <= side for _, size in spans)
    for (start, size), (following, _) in pairwise(spans):
        assert start < following <= start + size - overlap


@given(height=st.integers(1, 40), width=st.integers(1, 40), side=st.integers(1, 16), cut=st.data())
def test_what_is_local_comes_out_as_untiled(
    height: int, width: int, side: int, cut: st.DataObject
) -> None:
    overlap = cut.draw(st.integers(0, side // 4))
    source = torch.rand(1, 3, height, width)
    tiling = Tiling(side=side, overlap=overlap)
    grown = run_tiled(source, doubled, tiling, lambda: None)
    assert torch.allclose(grown, doubled(source), atol=1e-6)


@pytest.mark.parametrize("count", [1, 2])
def test_a_vae_sees_no_more_than_a_tile(count: int) -> None:
    model = PlainModel()
    samples = torch.rand(count, 4, 100, 70)
    args = {"samples": Latent(samples=samples), "tile_size": 256, "overlap": 64}
    (image,) = run_op("vae_decode_tiled", args, model=model).outputs
    assert isinstance(image, torch.Tensor)
    expected = samples.repeat_interleave(8, -1).repeat_interleave(8, -2).movedim(1, -1)
    assert torch.allclose(image, expected, atol=1e-6)
    assert max(model.seen) == (256 // 8) ** 2
    model.seen.clear()
    (latent,) = run_op(
        "vae_encode_tiled", {"pixels": image, "tile_size": 256, "overlap": 64}, model=model
    ).outputs
    assert isinstance(latent, Latent)
    assert torch.allclose(latent.samples, samples, atol=1e-6)
    assert max(model.seen) == 256**2


def test_a_picture_is_cropped_to_whole_cells() -> None:
    pixels = torch.rand(1, 131, 75, 3)
    args = {"pixels": pixels, "tile_size": 64, "overlap": 0}
    (latent,) = run_op("vae_encode_tiled", args, model=PlainModel()).outputs
    assert isinstance(latent, Latent)
    expected = torch.nn.functional.avg_pool2d(pixels[:, 1:129, 1:73].movedim(-1, 1), 8)
    assert torch.allclose(latent.samples, expected, atol=1e-6)


def test_an_overlap_is_a_quarter_of_a_tile_at_most() -> None:
    args = {"samples": Latent(samples=torch.rand(1, 4, 40, 40)), "tile_size": 64, "overlap": 4096}
    (image,) = run_op("vae_decode_tiled", args, model=PlainModel()).outputs
    assert isinstance(image, torch.Tensor)
    assert image.shape == (1, 320, 320, 4)


@pytest.fixture(scope="module")
def vae(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path: Path = tmp_path_factory.mktemp("models") / "tiny.safetensors"
    write_tiny_sd15(path)
    return load_model(path, Role.VAE)


def smooth_latents(rows: int, columns: int) -> torch.Tensor:
    """Even waves: every tile has the mean and spread of the whole, which a VAE's norms look at."""
    y, x = torch.arange(rows)[:, None] / 8.0, torch.arange(columns)[None, :] / 8.0
    waves = [(2 * torch.pi * (x + y + phase / 4)).sin() for phase in range(4)]
    return torch.stack(waves)[None]


def test_a_real_vae_decodes_tiles_almost_as_the_whole(vae: Model) -> None:
    latent = Latent(samples=smooth_latents(40, 56))
    (whole,) = run_op("vae_decode", {"samples": latent}, model=vae).outputs
    args = {"samples": latent, "tile_size": 256, "overlap": 64}
    (tiled,) = run_op("vae_decode_tiled", args, model=vae).outputs
    assert isinstance(whole, torch.Tensor)
    assert isinstance(tiled, torch.Tensor)
    assert tiled.shape == whole.shape
    difference = (tiled - whole).abs()
    assert 0 < difference.mean() < 0.02
    assert difference.mean() < 0.1 * (whole - whole.mean()).abs().mean()


def test_a_picture_of_one_tile_is_as_untiled(vae: Model) -> None:
    latent = Latent(samples=smooth_latents(8, 16))
    (whole,) = run_op("vae_decode", {"samples": latent}, model=vae).outputs
    args = {"samples": latent, "tile_size": 512, "overlap": 64}
    (tiled,) = run_op("vae_decode_tiled", args, model=vae).outputs
    assert isinstance(whole, torch.Tensor)
    assert isinstance(tiled, torch.Tensor)
    assert torch.equal(tiled, whole)
    (encoded,) = run_op("vae_encode", {"pixels": whole}, model=vae).outputs
    given = {"pixels": whole, "tile_size": 512, "overlap": 64}
    (in_tiles,) = run_op("vae_encode_tiled", given, model=vae).outputs
    assert isinstance(encoded, Latent)
    assert isinstance(in_tiles, Latent)
    assert torch.equal(in_tiles.samples, encoded.samples)


def test_tiles_can_be_interrupted() -> None:
    model = PlainModel()

    def after_three() -> None:
        if len(model.seen) == 3:
            raise Cancelled("interrupted")

    args = {"samples": Latent(samples=torch.rand(1, 4, 64, 64)), "tile_size": 64, "overlap": 0}
    with pytest.raises(Cancelled):
        run_op("vae_decode_tiled", args, model=model, check_cancelled=after_three)
    assert len(model.seen) == 3


def test_a_tile_without_a_cell_is_refused() -> None:
    args = {"samples": Latent(samples=torch.rand(1, 4, 8, 8)), "tile_size": 7, "overlap": 0}
    with pytest.raises(NodeFailed, match="a tile needs 8 pixels"):
        run_op("vae_decode_tiled", args, model=PlainModel())


def test_an_upscaler_works_in_tiles_and_without_alpha() -> None:
    model = PlainModel(factor=2)
    picture = torch.rand(1, 600, 530, 4) * 1.5 - 0.25
    (image,) = run_op("image_upscale", {"image": picture}, model=model).outputs
    assert isinstance(image, torch.Tensor)
    expected = picture[..., :3].repeat_interleave(2, 1).repeat_interleave(2, 2).clamp(0, 1)
    assert torch.allclose(image, expected, atol=1e-6)
    assert max(model.seen) <= 512**2


def test_an_upscaler_takes_smaller_tiles_where_memory_is_short() -> None:
    model = PlainModel(factor=2, most_pixels=200 * 200)
    (image,) = run_op("image_upscale", {"image": torch.rand(1, 300, 300, 3)}, model=model).outputs
    assert isinstance(image, torch.Tensor)
    assert image.shape == (1, 600, 600, 3)
    assert max(model.seen) <= 128**2
    with pytest.raises(torch.OutOfMemoryError):
        run_op(
            "image_upscale",
            {"image": torch.rand(1, 300, 300, 3)},
            model=PlainModel(factor=2, most_pixels=10),
        )
