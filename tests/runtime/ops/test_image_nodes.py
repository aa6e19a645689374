"""Picture and mask nodes that need no model: bounded, and clear about refusals.

That they give what ComfyUI's give is in `test_node_cases.py`.
"""

from __future__ import annotations

import kornia
import pytest
import torch
from kit.op_calls import run_op
from nodeloom.graph_import.nodes.image_masks import PLAIN
from nodeloom.runtime.errors import Cancelled, NodeFailed, OutOfMemory
from nodeloom.runtime.ops.image_morphology import dilate, erode
from nodeloom.runtime.ops.image_quantize import bayer_matrix
from nodeloom.runtime.ops.registry import OPS

PICTURE = torch.rand((1, 6, 8, 3), generator=torch.Generator().manual_seed(1))
LARGE = torch.zeros(1, 1, 1, 3).expand(4096, 512, 512, 3)


def test_every_row_has_a_body() -> None:
    assert {row.op for row in PLAIN} <= OPS


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("repeat_image_batch", {"image": LARGE, "amount": 4096}),
        ("image_batch", {"image1": LARGE, "image2": LARGE}),
        ("mask_to_image", {"mask": LARGE[..., 0].expand(4096, 512, 512)}),
        ("solid_mask", {"value": 1.0, "width": 1 << 17, "height": 1 << 17}),
        (
            "image_scale_to_max_dimension",
            {"image": LARGE, "upscale_method": "area", "largest_size": 16384},
        ),
        (
            "image_stitch",
            {
                "image1": LARGE,
                "image2": LARGE,
                "direction": "right",
                "match_image_size": False,
                "spacing_width": 0,
                "spacing_color": "red",
            },
        ),
        (
            "image_grid",
            {
                **{f"images_{index}": PICTURE for index in range(512)},
                "columns": 20,
                "cell_width": 2048,
                "cell_height": 2048,
                "padding": 50,
            },
        ),
        (
            "resize_image_mask_node",
            {
                "input": LARGE,
                "resize_type": "scale by multiplier",
                "multiplier": 8.0,
                "scale_method": "area",
            },
        ),
    ],
    ids=str,
)
def test_a_result_too_large_for_any_machine_is_refused(op: str, args: dict[str, object]) -> None:
    with pytest.raises(OutOfMemory):
        run_op(op, args)


@pytest.mark.parametrize(
    ("op", "args", "reason"),
    [
        ("image_to_mask", {"image": PICTURE, "channel": "alpha"}, "no channel 'alpha'"),
        ("canny", {"image": PICTURE, "low_threshold": 0.5, "high_threshold": 0.5}, "smaller"),
        ("image_blur", {"image": PICTURE, "blur_radius": 6, "sigma": 1.0}, "radius of 6"),
        ("image_yuv_to_rgb", {"Y": PICTURE, "U": PICTURE, "V": PICTURE[:, :3]}, "differ in size"),
        (
            "mask_composite",
            {
                "destination": PICTURE[..., 0],
                "source": PICTURE[..., 0],
                "x": 8,
                "y": 0,
                "operation": "add",
            },
            "doesn't meet",
        ),
        (
            "image_blend",
            {
                "image1": torch.ones(1, 6, 8, 4),
                "image2": PICTURE,
                "blend_factor": 0.5,
                "blend_mode": "screen",
            },
            "differ in channels",
        ),
        (
            "shuffle_image_text_dataset",
            {"images_0": PICTURE, "texts_0": "a", "texts_1": "b", "seed": 1},
            "1 images and 2 texts",
        ),
        (
            "resize_image_mask_node",
            {"input": PICTURE, "resize_type": "by hand", "scale_method": "area"},
            "no way 'by hand'",
        ),
        ("batch_images_node", {}, "no images"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(op: str, args: dict[str, object], reason: str) -> None:
    with pytest.raises(NodeFailed, match=reason):
        run_op(op, args)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_pooling_is_flat_morphology(size: int) -> None:
    x, kernel = PICTURE.movedim(-1, 1), torch.ones(size, size)
    torch.testing.assert_close(dilate(x, size), kornia.morphology.dilation(x, kernel))
    torch.testing.assert_close(erode(x, size), kornia.morphology.erosion(x, kernel))


def test_growing_a_mask_ends_when_nothing_changes_and_when_cancelled() -> None:
    mask = torch.zeros(1, 3, 3)
    mask[0, 0, 0] = 1.0
    looks: list[int] = []
    args = {"mask": mask, "expand": 16384, "tapered_corners": True}
    result = run_op("grow_mask", args, check_cancelled=lambda: looks.append(1))
    assert torch.equal(result.outputs[0], torch.ones(1, 3, 3))
    assert len(looks) == 5

    def interrupt() -> None:
        raise Cancelled("interrupted")

    with pytest.raises(Cancelled):
        run_op("grow_mask", args, check_cancelled=interrupt)


def test_bayer_matrix_has_each_threshold_once() -> None:
    matrix = bayer_matrix(4)
    assert sorted((matrix * 16 + 7.5).flatten().tolist()) == [float(n) for n in range(16)]


def test_inputs_are_left_as_they_were() -> None:
    before = PICTURE.clone()
    args = {"destination": PICTURE, "source": 1.0 - PICTURE, "x": 1, "y": 1, "resize_source": False}
    run_op("image_composite_masked", args)
    sides = {"left": 2, "top": 2, "right": 2, "bottom": 2}
    run_op("feather_mask", {"mask": PICTURE[..., 0], **sides})
    assert torch.equal(PICTURE, before)
