"""An image-to-image chain: a picture is drawn over, enlarged, and drawn over once more, lighter.

Both passes are one function, called twice.
"""

from typing import Any

from nodeloom import (
    Denoiser,
    Image,
    LatentsGenerator,
    Node,
    SamplerStep,
    TextEncoder,
    Vae,
    workflow,
)


@workflow
def redraw(
    image: Image,
    prompt: str,
    seed: int = 42,
    steps: int = 6,
    denoise: float = 0.6,
    checkpoint: str = "nodeloom-shapes.safetensors",
) -> Any:
    text_encoder, denoiser, vae = TextEncoder(checkpoint), Denoiser(checkpoint), Vae(checkpoint)
    latents_generator, sampler_step = LatentsGenerator(denoiser), SamplerStep()

    positive, negative = text_encoder(prompt), text_encoder("")
    latents = latents_generator(seed, steps, vae.encode(image), denoise=denoise)
    for _ in range(steps):
        latents = sampler_step(denoiser(latents, positive, negative), latents)
    return vae.decode(latents)


@workflow
def image_chain(image: Image, prompt: str, seed: int = 42, steps: int = 6, size: int = 128) -> Any:
    scale = Node("ImageScale")
    first = redraw(image, prompt, seed, steps, denoise=0.7)
    larger = scale(first, upscale_method="bilinear", width=size, height=size, crop="disabled")
    second = redraw(larger, prompt, seed, steps, denoise=0.3)
    return {"first": first, "second": second}
