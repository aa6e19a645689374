"""The transformer of SD3 and SD3.5 as a denoiser: noisy latents in, the estimate of x0 out.

It works in the denoiser's scaled latent space; guidance and the sampler's update are elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import torch

from ....graph_import import types
from ....graph_import.families import sampling_of
from ....graph_import.handles import MODEL_SAMPLING
from ....graph_import.model import Model
from ..checkpoint import (
    EIGHT_BITS,
    Check,
    build_module,
    count_bytes,
    estimate_bytes,
    no_check,
    read_weights,
)
from ..headers import DENOISER_PREFIX
from ..lora_file import Part
from ..mmdit import mmdit_config, original_modules, rename_mmdit
from ..patch_target import PatchTarget, fused_spellings, module_spellings
from .late_residuals import ResidualFetch, late_residuals
from .transformer_calls import TransformerCall, groups_of, tensor_of, transformer_inputs

PREFIXES: Final = (DENOISER_PREFIX, "")  # a file of the transformer's own has none


class Denoiser(Model):
    """Inputs: x float32 [B, 16, h, w], sigma, context float32 [1 or B, tokens, width], pooled.

    `pooled` is float32 [1 or B, width]. A call may have `residuals` (`late_residuals.py`), which
    are fetched at the first block that they change.
    Output: denoised float32 [B, 16, h, w] on the CPU. Many calls share one forward pass.
    """

    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("x", types.LATENT)
        self.add_input("sigma", types.FLOAT)
        self.add_input("context", types.CONDITIONING)
        self.add_input("pooled", types.CONDITIONING)
        self.add_input("residuals", types.RESIDUALS, deferred=True)
        self.add_output("denoised", types.LATENT)

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the transformer; float32 on a CPU and float16 elsewhere, as ComfyUI computes it.

        A key of an 8-bit dtype rounds the weights to it; the arithmetic stays the same.
        """
        from diffusers import SD3Transformer2DModel

        transformer_class: Any = SD3Transformer2DModel
        weights = read_weights(self.ref.key.file, PREFIXES, check)
        config = mmdit_config(weights)
        self._module = build_module(
            lambda: transformer_class(**config),
            weights,
            rename_mmdit(weights),
            dtype=torch.float32 if device == "cpu" else torch.float16,
            stored=EIGHT_BITS.get(self.ref.key.dtype),
            device=device,
            check=check,
        )
        self._num_bytes = count_bytes(self._module)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the file's header lets expect."""
        if self._num_bytes is None:
            return estimate_bytes(self.ref.key.file, PREFIXES)
        return self._num_bytes

    def patch_target(self) -> PatchTarget:
        """The transformer's weights, under diffusers' names and the original ones."""
        paths = [name.rpartition(".")[0] for name, _ in self._module.named_parameters()]
        # diffusers' attention processors call their last matrix `to_out`, without its number.
        outputs = [(path.removesuffix(".0"), path) for path in paths if path.endswith("to_out.0")]
        names = list(original_modules(len(self._module.transformer_blocks)))
        single = [(original, own[0]) for original, own in names if len(own) == 1]
        return PatchTarget(
            part=Part.DENOISER,
            module=self._module,
            modules=module_spellings(self._module, [*outputs, *single]),
            stored=None,
            fused=fused_spellings(self._module, [one for one in names if len(one[1]) > 1]),
        )

    def execute(self, **inputs: object) -> Mapping[str, object]:
        return self.execute_batch([inputs])[0]

    @torch.no_grad()
    def execute_batch(self, calls: Sequence[TransformerCall]) -> list[Mapping[str, object]]:
        """Run the calls in as few forwards as their shapes allow. Raises: NodeFailed: a misfit."""
        results: list[Mapping[str, object]] = [{} for _ in calls]
        for group in groups_of(calls, self._module.config):
            denoised = self._forward([calls[index] for index in group])
            for index, tensor in zip(group, denoised, strict=True):
                results[index] = {"denoised": tensor}
        return results

    def _forward(self, calls: Sequence[TransformerCall]) -> list[torch.Tensor]:
        sampling = sampling_of(self.ref.key.family, self.ref.option(MODEL_SAMPLING))
        inputs = transformer_inputs(calls, sampling, self._module.config)
        fetches = [cast(ResidualFetch | None, call.get("residuals")) for call in calls]
        with late_residuals(self._module, fetches, inputs.counts):
            output = inputs.forward(self._module).sample.to("cpu", torch.float32)
        height, width = inputs.size
        parts = torch.split(output[..., :height, :width], list(inputs.counts))
        return [
            sampling.denoised(tensor_of(call, "x"), part, cast(float, call["sigma"]))
            for call, part in zip(calls, parts, strict=True)
        ]
