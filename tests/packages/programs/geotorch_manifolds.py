"""geotorch: parameters that stay on manifolds while they are trained."""

import geotorch
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(16, 6), torch.randn(16, 6)
for name, constrain in (
    ("orthogonal", geotorch.orthogonal),
    ("positive_definite", geotorch.positive_definite),
    ("positive_semidefinite", geotorch.positive_semidefinite),
    ("skew", geotorch.skew),
    ("symmetric", geotorch.symmetric),
    ("invertible", geotorch.invertible),
    ("sln", geotorch.sln),
    ("low_rank", lambda m, n: geotorch.low_rank(m, n, 2)),
    ("fixed_rank", lambda m, n: geotorch.fixed_rank(m, n, 2)),
    ("sphere", geotorch.sphere),
    ("grassmannian", geotorch.grassmannian),
    ("almost_orthogonal", lambda m, n: geotorch.almost_orthogonal(m, n, 0.1)),
):
    torch.manual_seed(2)
    layer = nn.Linear(6, 6)
    constrain(layer, "weight")
    if hasattr(layer.parametrizations.weight[0], "sample"):
        layer.weight = layer.parametrizations.weight[0].sample()
    optimizer = torch.optim.SGD(layer.parameters(), 0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(layer(x), y)
        loss.backward()
        optimizer.step()
        losses.append(f"{loss.item():.4f}")
    w = layer.weight.detach()
    print(name, losses, f"{(w @ w.T).trace().item():.4f} {w.det().abs().item():.4f}")
