"""The bodies of nodes that join the latents of a video and its sound, and take them apart."""

from __future__ import annotations

from ..errors import NodeFailed
from ..values import AvLatent, Latent, Value
from .arguments import argument
from .base import OpCall
from .each_call import each_call
from .latent_edit import latent_argument


@each_call
def av_latent_join(call: OpCall) -> tuple[Value, ...]:
    """video_latent, audio_latent -> both as one LATENT."""
    video, audio = (latent_argument(call, name) for name in ("video_latent", "audio_latent"))
    return (AvLatent(video=video, audio=audio),)


@each_call
def av_latent_separate(call: OpCall) -> tuple[Value, ...]:
    """av_latent -> the video, the sound.

    Of a plain batch they are its first two items, as recorded from ComfyUI 0.8.0: without the
    batch's dimension, so that hardly a node takes them.
    """
    if isinstance(call.args.get("av_latent"), Latent):
        items = argument(call, "av_latent", Latent).samples
        if len(items) < 2:
            raise NodeFailed("the latent has no sound", input="av_latent")
        return tuple(Latent(samples=item.contiguous()) for item in items[:2])
    joined = argument(call, "av_latent", AvLatent)
    return joined.video, joined.audio
