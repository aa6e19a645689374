"""The node classes that there are, by class_type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..catalog import Catalog
from . import (
    animation,
    av_latents,
    cfg_patches,
    conditioning_details,
    conditioning_properties,
    custom_sampling,
    guiders,
    hooks,
    image_masks,
    latents,
    logic,
    model_sampling,
    resize_either,
    samplers,
    sigma_edits,
    sigma_schedules,
    text_encoder_loaders,
    text_encoding,
    texts,
)
from .base import NodeClass
from .conditioning import CLIPSetLastLayer, CLIPTextEncode
from .conditioning_arithmetic import (
    ConditioningAverage,
    ConditioningCombine,
    ConditioningConcat,
    ConditioningZeroOut,
)
from .conditioning_regions import (
    ConditioningSetArea,
    ConditioningSetAreaPercentage,
    ConditioningSetMask,
    ConditioningSetTimestepRange,
)
from .controlnet import (
    ControlNetApply,
    ControlNetApplyAdvanced,
    ControlNetApplySD3,
    ControlNetLoader,
    DiffControlNetLoader,
)
from .image import (
    EmptyImage,
    GetImageSize,
    ImageScale,
    LoadImage,
    LoadImageMask,
    LoadImageOutput,
    PreviewImage,
    SaveImage,
)
from .image_edit import (
    ImageInvert,
    ImagePadForOutpaint,
    ImageScaleBy,
    ImageScaleToTotalPixels,
    ImageUpscaleWithModel,
    UpscaleModelLoader,
)
from .inpaint import (
    DifferentialDiffusion,
    InpaintModelConditioning,
    SetLatentNoiseMask,
    VAEEncodeForInpaint,
)
from .latent import EmptyLatentImage, VAEDecode, VAEDecodeTiled, VAEEncode, VAEEncodeTiled
from .latent_edit import (
    LatentBatch,
    LatentComposite,
    LatentFromBatch,
    LatentUpscale,
    LatentUpscaleBy,
    RepeatLatentBatch,
)
from .loaders import CheckpointLoaderSimple, UNETLoader, VAELoader
from .lora import LoraLoader, LoraLoaderModelOnly
from .sampling import KSampler
from .sampling_advanced import KSamplerAdvanced
from .stepwise import STEPWISE
from .utility import (
    PrimitiveBoolean,
    PrimitiveFloat,
    PrimitiveInt,
    PrimitiveString,
    PrimitiveStringMultiline,
)

BUILT_IN: Final[tuple[type[NodeClass], ...]] = (
    KSampler,
    KSamplerAdvanced,
    CheckpointLoaderSimple,
    VAELoader,
    UNETLoader,
    *text_encoder_loaders.NODES,
    *text_encoding.NODES,
    LoraLoader,
    LoraLoaderModelOnly,
    CLIPTextEncode,
    CLIPSetLastLayer,
    ConditioningCombine,
    ConditioningAverage,
    ConditioningConcat,
    ConditioningSetArea,
    ConditioningSetAreaPercentage,
    ConditioningSetMask,
    ConditioningSetTimestepRange,
    ConditioningZeroOut,
    ControlNetLoader,
    DiffControlNetLoader,
    ControlNetApply,
    ControlNetApplyAdvanced,
    ControlNetApplySD3,
    SetLatentNoiseMask,
    VAEEncodeForInpaint,
    InpaintModelConditioning,
    DifferentialDiffusion,
    VAEDecode,
    VAEEncode,
    VAEDecodeTiled,
    VAEEncodeTiled,
    EmptyLatentImage,
    LatentUpscale,
    LatentUpscaleBy,
    LatentComposite,
    RepeatLatentBatch,
    LatentBatch,
    LatentFromBatch,
    SaveImage,
    PreviewImage,
    LoadImage,
    LoadImageMask,
    LoadImageOutput,
    *animation.NODES,
    ImageScale,
    ImageScaleBy,
    ImageScaleToTotalPixels,
    ImagePadForOutpaint,
    ImageInvert,
    UpscaleModelLoader,
    ImageUpscaleWithModel,
    EmptyImage,
    GetImageSize,
    PrimitiveString,
    PrimitiveInt,
    PrimitiveFloat,
    PrimitiveBoolean,
    PrimitiveStringMultiline,
    *texts.NODES,
    *logic.NODES,
    *latents.NODES,
    *av_latents.NODES,
    *cfg_patches.NODES,
    *conditioning_details.NODES,
    *conditioning_properties.NODES,
    *hooks.NODES,
    *custom_sampling.NODES,
    *guiders.NODES,
    *image_masks.NODES,
    *model_sampling.NODES,
    *resize_either.NODES,
    *samplers.NODES,
    *sigma_edits.NODES,
    *sigma_schedules.NODES,
)


class Registry:
    """class_type -> NodeClass. `unlisted` classes work like the others but are not described."""

    def __init__(
        self,
        classes: Iterable[type[NodeClass]] = BUILT_IN,
        unlisted: Iterable[type[NodeClass]] = STEPWISE,
    ) -> None:
        listed = {cls.schema.class_type: cls() for cls in classes}
        self._listed = tuple(listed)
        self._classes = {cls.schema.class_type: cls() for cls in unlisted} | listed

    def extended(self, more: Iterable[NodeClass]) -> Registry:
        """This registry and more unlisted classes; of two of a name the one here stays."""
        registry = Registry((), ())
        registry._listed = self._listed
        registry._classes = {cls.schema.class_type: cls for cls in more} | self._classes
        return registry

    def __contains__(self, class_type: str) -> bool:
        return class_type in self._classes

    def __getitem__(self, class_type: str) -> NodeClass:
        """Raises: KeyError: no such class."""
        return self._classes[class_type]

    def object_info(self, catalog: Catalog, class_type: str | None = None) -> dict[str, object]:
        """ComfyUI's description of all classes, or of one; an unknown one gives `{}`."""
        if class_type is None:
            wanted = self._listed
        else:
            wanted = tuple(name for name in self._listed if name == class_type)
        return {name: self[name].schema.description(catalog) for name in wanted}
