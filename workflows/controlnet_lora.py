"""A ControlNet and a LoRA on SD1.5, after LegoDiffusion's Figure 7 (arXiv 2604.08123)."""

from nodeloom import (
    ControlNet,
    Denoiser,
    LatentsGenerator,
    LoRA,
    SamplerStep,
    TextEncoder,
    Vae,
    Workflow,
)

with Workflow("sd15_controlnet_lora") as flow:
    seed = flow.add_input("seed", int, 42)
    prompt = flow.add_input("prompt", str)
    num_denoising_steps = flow.add_input("num_denoising_steps", int, 20)
    ref_image = flow.add_input("ref_image", "IMAGE")
    checkpoint = flow.add_input("checkpoint", str, "nodeloom-shapes.safetensors")
    controlnet_file = flow.add_input("controlnet", str, "nodeloom-shapes-contours.safetensors")
    lora_file = flow.add_input("lora", str, "nodeloom-shapes-ink.safetensors")

    text_encoder = TextEncoder(checkpoint)
    denoiser = Denoiser(checkpoint)
    controlnet = ControlNet(controlnet_file)
    lora = LoRA(lora_file, strength=0.8)
    vae = Vae(checkpoint)
    latents_generator = LatentsGenerator(denoiser)
    sampler_step = SamplerStep()

    denoiser.add_patch(lora)

    positive = text_encoder(prompt)
    negative = text_encoder("")
    latents = latents_generator(seed, num_denoising_steps, width=128, height=128)
    for _ in range(num_denoising_steps):
        residuals = controlnet(latents, positive, negative, hint=ref_image, strength=0.9)
        estimate = denoiser(latents, positive, negative, residuals, cfg=5.0)
        latents = sampler_step(estimate, latents)
    flow.add_output(vae(latents, mode="decode"), name="output_img")
