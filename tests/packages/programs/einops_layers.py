"""einops: rearrangements as functions and layers."""

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce

torch.manual_seed(0)
x = torch.randn(2, 6, 8, 8, requires_grad=True)
net = torch.nn.Sequential(
    Rearrange("b (c d) h w -> b c (h d) w", d=2), Reduce("b c (h p) w -> b (c h) w", "mean", p=4),
    EinMix("b t w -> b t o", weight_shape="w o", bias_shape="o", w=8, o=5),
)  # fmt: skip
out = net(x)
out.pow(2).sum().backward()
print(out.shape, out.sum().item(), x.grad.abs().sum().item())
print(
    rearrange(x, "b c h w -> b (h w) c").shape,
    reduce(x, "b c h w -> b c", "max").sum().item(),
    repeat(x[0, 0], "h w -> h (w r)", r=3).shape,
)
packed, shapes = (
    pack([x[:, 0], x[:, 1, 0]], "b * w" if False else "b *")
    if False
    else pack([torch.ones(3, 4), torch.zeros(3, 2, 5)], "a *")
)
print(
    packed.shape,
    [part.shape for part in unpack(packed, shapes, "a *")],
    einsum(x[0, 0], x[0, 1], "i j, k j -> i k").sum().item(),
)
