"""The latents of a video and its sound stay together from the one node to the other."""

from __future__ import annotations

import pytest
import torch
from kit.op_calls import run_op
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.values import AvLatent, Latent, flatten, unflatten

VIDEO = Latent(samples=torch.rand(1, 4, 2, 3, 3), noise_mask=torch.ones(1, 1, 3, 3))
AUDIO = Latent(samples=torch.rand(1, 8, 5, 16))


def joined() -> AvLatent:
    (value,) = run_op("av_latent_join", {"video_latent": VIDEO, "audio_latent": AUDIO}).outputs
    assert isinstance(value, AvLatent)
    return value


def test_what_was_joined_comes_apart_again_on_another_executor() -> None:
    carried = unflatten(*flatten(joined()))
    video, audio = run_op("av_latent_separate", {"av_latent": carried}).outputs
    assert isinstance(video, Latent)
    assert isinstance(audio, Latent)
    assert torch.equal(video.samples, VIDEO.samples)
    assert video.noise_mask is not None
    assert torch.equal(audio.samples, AUDIO.samples)
    assert audio.noise_mask is None


def test_nodes_of_plain_latents_refuse_both_at_once() -> None:
    with pytest.raises(NodeFailed, match="input samples must be Latent, not AvLatent"):
        run_op("latent_multiply", {"samples": joined(), "multiplier": 2.0})


def test_a_latent_without_sound_has_none() -> None:
    with pytest.raises(NodeFailed, match="the latent has no sound"):
        run_op("av_latent_separate", {"av_latent": VIDEO})
