"""denoising-diffusion-pytorch: diffusion of pictures and sequences trains and samples; vector-quantize-pytorch, rotary-embedding-torch, ema-pytorch and local-attention beside it."""

import random

import torch
from denoising_diffusion_pytorch import GaussianDiffusion, GaussianDiffusion1D, Unet, Unet1D
from ema_pytorch import EMA
from local_attention import LocalTransformer
from rotary_embedding_torch import RotaryEmbedding
from torch import nn
from vector_quantize_pytorch import FSQ, LFQ, ResidualVQ, VectorQuantize

random.seed(0)
torch.manual_seed(0)
diffusion = GaussianDiffusion(
    Unet(dim=16, dim_mults=(1, 2), flash_attn=True), image_size=16, timesteps=20, sampling_timesteps=4
)
optimizer = torch.optim.Adam(diffusion.parameters(), 1e-3)
pictures = torch.rand(2, 3, 16, 16)
for _ in range(3):
    loss = diffusion(pictures)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
print("samples", diffusion.sample(batch_size=2).double().sum().item())
diffusion = GaussianDiffusion1D(
    Unet1D(dim=16, dim_mults=(1, 2), channels=4), seq_length=16, timesteps=10, objective="pred_v"
)
print("sequences", diffusion(torch.rand(2, 4, 16)).item(), diffusion.sample(batch_size=2).double().sum().item())

x = torch.randn(2, 32, 16)
for name, quantizer in (
    ("by k-means", VectorQuantize(dim=16, codebook_size=32, kmeans_init=True, kmeans_iters=3)),
    ("by angles", VectorQuantize(dim=16, codebook_size=32, use_cosine_sim=True, threshold_ema_dead_code=2)),
    ("of residues", ResidualVQ(dim=16, num_quantizers=2, codebook_size=16)),
):
    for _ in range(2):
        values, places, loss = quantizer(x)
        print("codes", name, values.double().sum().item(), places.sum().item(), loss.sum().item())
values, places = FSQ([8, 5, 5], dim=16)(x)
print("levels", values.double().sum().item(), places.sum().item())
values, places, loss = LFQ(codebook_size=16, dim=16)(x)
print("signs", values.double().sum().item(), places.sum().item(), loss.item())
queries = torch.randn(1, 2, 16, 8)
turned = RotaryEmbedding(dim=8, use_xpos=True).rotate_queries_and_keys(queries, queries)
print("turned", [each.double().sum().item() for each in turned])
network = nn.Linear(4, 4)
average = EMA(network, beta=0.9, update_after_step=0, update_every=1)
for _ in range(3):
    with torch.no_grad():
        network.weight.add_(0.1)
    average.update()
print("average", average(torch.ones(1, 4)).sum().item())
local = LocalTransformer(num_tokens=32, dim=16, depth=2, max_seq_len=64, causal=True, local_attn_window_size=8,
                         heads=2, dim_head=8)  # fmt: skip
loss = local(torch.randint(0, 32, (1, 64)), return_loss=True)
loss.backward()
print("local", loss.item())
