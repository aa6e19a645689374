"""Weights that are float32 only while their layer runs are back as they were, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kit.encoder_files import OWN, encode, loaded
from kit.tiny_text import made, scaled
from safetensors.torch import save_file


def test_a_layer_that_fails_leaves_its_weights_as_they_were(tmp_path: Path) -> None:
    save_file(dict(scaled(made(OWN["t5"]))), tmp_path / "t5.safetensors")
    model = loaded(tmp_path, "sd3", "t5")
    first = encode(model).cond
    module = model.transformers["t5xxl"].module
    held = {name: (one.data_ptr(), one.dtype) for name, one in module.named_parameters()}

    def fail(*_: object) -> None:
        raise MemoryError

    failing = module.block[1].layer[1].register_forward_pre_hook(fail)
    with pytest.raises(MemoryError):
        encode(model)
    failing.remove()
    assert held == {name: (one.data_ptr(), one.dtype) for name, one in module.named_parameters()}
    assert torch.equal(encode(model).cond, first)
