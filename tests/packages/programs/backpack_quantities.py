"""backpack-for-pytorch: gradients of each sample, variances and curvature beside the gradient."""

import torch
from backpack import backpack, extend
from backpack.extensions import (
    KFAC,
    KFLR,
    KFRA,
    BatchGrad,
    BatchL2Grad,
    DiagGGNExact,
    DiagGGNMC,
    DiagHessian,
    SumGradSquared,
    Variance,
)
from torch import nn

torch.manual_seed(0)
model = extend(
    nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 10), nn.Sigmoid(), nn.Linear(10, 4)
    )
)
loss = extend(nn.CrossEntropyLoss())
x, y = torch.randn(5, 1, 8, 8), torch.tensor([0, 1, 2, 3, 1])
with backpack(BatchGrad(), BatchL2Grad(), SumGradSquared(), Variance(), DiagGGNExact(), KFLR()):
    loss(model(x), y).backward()
for name, p in model.named_parameters():
    print(
        name,
        tuple(p.grad_batch.shape),
        f"{p.grad.abs().sum():.5f} {p.grad_batch.abs().sum():.5f} {p.batch_l2.sum():.5f} {p.variance.sum():.5f} {p.sum_grad_squared.sum():.5f} {p.diag_ggn_exact.sum():.5f}",
        [tuple(f.shape) for f in p.kflr],
        f"{sum(f.abs().sum() for f in p.kflr):.4f}",
    )
torch.manual_seed(1)
with backpack(DiagGGNMC(mc_samples=3), KFAC(mc_samples=2)):
    loss(model(x), y).backward()
for name, p in model.named_parameters():
    print(name, f"{p.diag_ggn_mc.sum():.5f} {sum(f.abs().sum() for f in p.kfac):.4f}")
dense = extend(nn.Sequential(nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 3)))
mse = extend(nn.MSELoss())
with backpack(DiagHessian(), KFRA()):
    mse(dense(torch.randn(4, 6)), torch.randn(4, 3)).backward()
for name, p in dense.named_parameters():
    print(name, f"{p.diag_h.sum():.5f} {sum(f.abs().sum() for f in p.kfra):.4f}")
