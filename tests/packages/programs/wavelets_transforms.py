"""pytorch-wavelets: discrete and dual-tree wavelet transforms and their inverses, with gradients."""

import torch
from pytorch_wavelets import DTCWTForward, DTCWTInverse, DWT1DForward, DWT1DInverse, DWTForward, DWTInverse, ScatLayer

torch.manual_seed(0)
x = torch.randn(2, 3, 32, 32, requires_grad=True)
for wave, mode in (("db1", "zero"), ("db3", "symmetric"), ("sym4", "periodization"), ("bior2.2", "reflect")):
    low, high = DWTForward(J=2, wave=wave, mode=mode)(x)
    back = DWTInverse(wave=wave, mode=mode)((low, high))
    (g,) = torch.autograd.grad(low.pow(2).sum() + sum(h.abs().sum() for h in high), x)
    print(
        wave,
        mode,
        tuple(low.shape),
        [tuple(h.shape) for h in high],
        f"{low.abs().sum().item():.4f} {g.abs().sum().item():.4f} {(back - x).abs().max().item() < 1e-4}",
    )
low, high = DTCWTForward(J=3, biort="near_sym_b", qshift="qshift_b")(x)
back = DTCWTInverse(biort="near_sym_b", qshift="qshift_b")((low, high))
print(
    "dtcwt",
    tuple(low.shape),
    [tuple(h.shape) for h in high],
    f"{low.abs().sum().item():.4f} {sum(h.abs().sum() for h in high).item():.4f} {(back - x).abs().max().item() < 1e-4}",
)
low, high = DWT1DForward(wave="db4", J=3)(x[0])
print(
    "1d",
    tuple(low.shape),
    [tuple(h.shape) for h in high],
    f"{low.abs().sum().item():.4f} {(DWT1DInverse(wave='db4')((low, high)) - x[0]).abs().max().item() < 1e-4}",
)
out = ScatLayer()(x)
print(
    "scat",
    tuple(out.shape),
    f"{out.abs().sum().item():.4f} {torch.autograd.grad(out.sum(), x)[0].abs().sum().item():.4f}",
)
