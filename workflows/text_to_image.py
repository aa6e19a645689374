"""Text to image, sampled step by step: the nodes of `txt2img.json`, from a Python loop."""

from nodeloom import (
    Denoiser,
    LatentsGenerator,
    Placeholder,
    SamplerStep,
    TextEncoder,
    Vae,
    workflow,
)


@workflow
def text_to_image(
    prompt: str,
    negative_prompt: str = "",
    seed: int = 42,
    steps: int = 20,
    cfg: float = 5.0,
    size: int = 128,
    checkpoint: str = "nodeloom-shapes.safetensors",
) -> Placeholder:
    text_encoder = TextEncoder(checkpoint)
    denoiser = Denoiser(checkpoint)
    vae = Vae(checkpoint)
    latents_generator = LatentsGenerator(denoiser, sampler="dpmpp_2m", schedule="normal")
    sampler_step = SamplerStep()

    positive = text_encoder(prompt)
    negative = text_encoder(negative_prompt)
    latents = latents_generator(seed, steps, width=size, height=size)
    for _ in range(steps):
        estimate = denoiser(latents, positive, negative, cfg=cfg)
        latents = sampler_step(estimate, latents)
    return vae.decode(latents)
