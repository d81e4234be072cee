"""torch-optimizer: its optimizers take steps on a small network."""

import copy

import torch
import torch_optimizer as optim
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
x, y = torch.randn(16, 5), torch.randn(16, 3)
for name in (
    "A2GradExp",
    "A2GradInc",
    "A2GradUni",
    "AccSGD",
    "AdaBelief",
    "AdaBound",
    "AdaMod",
    "Adafactor",
    "Adahessian",
    "AdamP",
    "AggMo",
    "Apollo",
    "DiffGrad",
    "LARS",
    "Lamb",
    "MADGRAD",
    "NovoGrad",
    "PID",
    "QHAdam",
    "QHM",
    "RAdam",
    "Ranger",
    "RangerQH",
    "RangerVA",
    "SGDP",
    "SGDW",
    "SWATS",
    "Shampoo",
    "Yogi",
):
    net = copy.deepcopy(model)
    cls = getattr(optim, name)
    options = {"lr": 1e-2} if name not in ("Adafactor", "A2GradExp", "A2GradInc", "A2GradUni") else {}
    optimizer = (
        optim.Lookahead(cls(net.parameters(), **options), k=2) if name == "Yogi" else cls(net.parameters(), **options)
    )
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward(create_graph=name == "Adahessian")
        optimizer.step()
    print(name, f"{loss.item():.6f} {sum(p.abs().sum() for p in net.parameters()).item():.5f}")
