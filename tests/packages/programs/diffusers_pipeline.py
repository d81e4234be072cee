"""diffusers: a small UNet trains on noise, and samples with several schedulers; an autoencoder."""

import tempfile

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    UNet2DConditionModel,
    UNet2DModel,
)
from diffusers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.manual_seed(0)
blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
unet = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(32, 64),
    norm_num_groups=8,
    **blocks,
)
noise_scheduler = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
images = torch.randn(2, 3, 16, 16)
for _ in range(3):
    noise, steps = torch.randn_like(images), torch.randint(0, 100, (2,))
    loss = torch.nn.functional.mse_loss(unet(noise_scheduler.add_noise(images, noise, steps), steps).sample, noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
unet.eval()
for kind in (DDIMScheduler, EulerDiscreteScheduler, DPMSolverMultistepScheduler):
    scheduler = kind.from_config(noise_scheduler.config)
    scheduler.set_timesteps(4)
    generator = torch.Generator().manual_seed(1)
    sample = torch.randn(1, 3, 16, 16, generator=generator) * scheduler.init_noise_sigma
    with torch.no_grad():
        for t in scheduler.timesteps:
            sample = scheduler.step(unet(scheduler.scale_model_input(sample, t), t).sample, t, sample).prev_sample
    print(kind.__name__, sample.abs().mean().item())
with tempfile.TemporaryDirectory() as folder:
    DDPMPipeline(unet, noise_scheduler).save_pretrained(folder)
    pipeline = DDPMPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    out = pipeline(
        batch_size=1, generator=torch.Generator().manual_seed(2), num_inference_steps=3, output_type="np"
    ).images
    print("pipeline", out.shape, float(out.mean()))
torch.manual_seed(4)
vae = AutoencoderKL(
    block_out_channels=(16, 32),
    down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    norm_num_groups=8,
).eval()
with torch.no_grad():
    latent = vae.encode(images).latent_dist.mode()
    print("vae", tuple(latent.shape), vae.decode(latent).sample.std().item())
    conditional = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32), cross_attention_dim=24, norm_num_groups=8,
        attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    ).eval()  # fmt: skip
    print("conditional", conditional(torch.randn(1, 4, 8, 8), 5, torch.randn(1, 7, 24)).sample.std().item())
