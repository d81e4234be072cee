"""pytorch-optimizer: thirty optimizers take steps; prodigyopt, schedulefree, lion-pytorch beside it."""

import pytorch_optimizer
import torch
from lion_pytorch import Lion
from prodigyopt import Prodigy
from schedulefree import AdamWScheduleFree, SGDScheduleFree

names = [
    "AdaBelief", "AdaBound", "Adai", "AdamP", "AdaPNM", "AdaSmooth", "Adan", "ADOPT", "AMos", "AggMo", "CAME", "DAdaptAdam", "DiffGrad",
    "FAdam", "Gravity", "Lamb", "LARS", "Lion", "MADGRAD", "Muon", "NovoGrad", "PID", "QHAdam", "QHM", "RAdam", "Ranger", "ScalableShampoo",
    "SGDP", "SignSGD", "SOAP", "SRMM", "StableAdamW", "Tiger", "Yogi", "AdEMAMix", "Ranger21",
]  # fmt: skip


def train(name, make):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    x, y = torch.randn(16, 6), torch.randn(16, 2)
    optimizer = make(net.parameters())
    if hasattr(optimizer, "train"):
        optimizer.train()
    for _ in range(4):
        loss = (net(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # SOAP's matrices have low rank here, and equal eigenvalues have no unique eigenvectors.
    digits = 1 if name == "SOAP" else 10
    print(name, round(loss.item(), digits), round(sum(p.abs().sum().item() for p in net.parameters()), digits - 1))


for name in names:
    kind = getattr(pytorch_optimizer, name, None)
    options = (
        {"num_iterations": 10} if name == "Ranger21" else {"betas": (0.9, 0.99, 0.999)} if name == "AdEMAMix" else {}
    )
    if name == "Muon":
        options = {}
    if kind is None:
        print(name, "is not there")
        continue
    try:
        train(name, lambda parameters, kind=kind, options=options: kind(parameters, **({"lr": 1e-2} | options)))
    except (TypeError, ValueError, KeyError, RuntimeError) as error:  # another way to be made
        print(name, type(error).__name__)
train("lion", lambda parameters: Lion(parameters, lr=1e-2))
train("prodigy", lambda parameters: Prodigy(parameters))
train("schedule free AdamW", lambda parameters: AdamWScheduleFree(parameters, lr=1e-2))
train("schedule free SGD", lambda parameters: SGDScheduleFree(parameters, lr=1e-2))
