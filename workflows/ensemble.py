"""A two-model ensemble: one denoiser does the coarse steps, another one the fine ones."""

from nodeloom import (
    Denoiser,
    LatentsGenerator,
    Placeholder,
    SamplerStep,
    TextEncoder,
    Vae,
    structural,
    workflow,
)


@workflow
def ensemble(
    prompt: str,
    seed: int = 42,
    steps: int = 20,
    coarse_steps: int = 12,
    size: int = 128,
    coarse: str = "nodeloom-shapes.safetensors",
    fine: str = "nodeloom-shapes.safetensors",
) -> Placeholder:
    text_encoder = TextEncoder(coarse)
    coarse_denoiser, fine_denoiser = Denoiser(coarse), Denoiser(fine)
    latents_generator = LatentsGenerator(coarse_denoiser)
    sampler_step = SamplerStep()

    positive, negative = text_encoder(prompt), text_encoder("")
    latents = latents_generator(seed, steps, width=size, height=size)
    switch_at = structural(coarse_steps)
    for step in range(steps):
        denoiser = coarse_denoiser if step < switch_at else fine_denoiser
        latents = sampler_step(denoiser(latents, positive, negative), latents)
    return Vae(fine).decode(latents)
