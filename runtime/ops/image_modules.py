"""Which module has the body of an op on pictures and masks that needs no model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_OPS: Final = {
    "image_adjust": (
        "adjust_brightness", "adjust_contrast", "canny", "image_add_noise", "image_blend",
        "image_blur", "image_rgb_to_yuv", "image_sharpen", "image_yuv_to_rgb", "normalize_images",
    ),
    "image_dataset": (
        "center_crop_images", "random_crop_images", "resize_images_by_longer_edge",
        "resize_images_by_shorter_edge",
    ),
    "image_join": ("image_stitch", "porter_duff_image_composite"),
    "image_layout": (
        "batch_images_node", "flux_kontext_image_scale", "image_batch", "image_composite_masked",
        "image_crop", "image_flip", "image_from_batch", "image_rotate",
        "image_scale_to_max_dimension", "repeat_image_batch", "resize_and_pad_image",
    ),
    "image_lists": (
        "image_deduplication", "image_grid", "merge_image_lists", "rebatch_images",
        "shuffle_dataset", "shuffle_image_text_dataset",
    ),
    "image_morphology": ("grow_mask", "morphology"),
    "image_quantize": ("image_quantize",),
    "resize_either": ("resize_image_mask_node",),
    "mask_edit": (
        "batch_masks_node", "crop_mask", "feather_mask", "image_color_to_mask",
        "image_to_mask", "invert_mask", "join_image_with_alpha", "mask_composite",
        "mask_to_image", "solid_mask", "split_image_with_alpha", "threshold_mask",
    ),
}  # fmt: skip

MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {op: module for module, ops in _OPS.items() for op in ops}
)
