"""lightly: heads and losses of self-supervised learning train on two views of pictures."""

import copy

import torch
from lightly.loss import (
    BarlowTwinsLoss,
    DCLLoss,
    DINOLoss,
    NegativeCosineSimilarity,
    NTXentLoss,
    SwaVLoss,
    TiCoLoss,
    VICRegLoss,
)
from lightly.models.modules import (
    BarlowTwinsProjectionHead,
    BYOLPredictionHead,
    BYOLProjectionHead,
    DINOProjectionHead,
    SimCLRProjectionHead,
    SimSiamPredictionHead,
    SimSiamProjectionHead,
    SwaVProjectionHead,
    SwaVPrototypes,
)
from lightly.models.utils import deactivate_requires_grad, update_momentum
from lightly.utils.scheduler import cosine_schedule
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
)
a, b = torch.randn(8, 3, 16, 16), torch.randn(8, 3, 16, 16)


def train(name, head, loss, *more):
    parts = nn.ModuleList([copy.deepcopy(backbone), head, *more])
    optimizer = torch.optim.SGD(parts.parameters(), 0.05, momentum=0.9)
    values = []
    for _ in range(3):
        optimizer.zero_grad()
        value = loss(parts)
        value.backward()
        optimizer.step()
        values.append(f"{value.item():.4f}")
    print(name, values)


def pair(m):
    return m[1](m[0](a)), m[1](m[0](b))


barlow = BarlowTwinsLoss()
for name, criterion in (
    ("simclr", NTXentLoss(temperature=0.3)),
    ("dcl", DCLLoss()),
    ("vicreg", VICRegLoss()),
    ("tico", TiCoLoss()),
    ("memory", NTXentLoss(memory_bank_size=(16, 8))),
):
    train(name, SimCLRProjectionHead(8, 16, 8), lambda m, c=criterion: c(*pair(m)))
train("barlow", BarlowTwinsProjectionHead(8, 16, 8), lambda m: barlow(*pair(m)))
cosine = NegativeCosineSimilarity()


def siam(m):
    z0, z1 = pair(m)
    return 0.5 * (cosine(m[2](z0), z1.detach()) + cosine(m[2](z1), z0.detach()))


train("simsiam", SimSiamProjectionHead(8, 16, 8), siam, SimSiamPredictionHead(8, 4, 8))
train("byol", BYOLProjectionHead(8, 16, 8), siam, BYOLPredictionHead(8, 16, 8))
swav = SwaVLoss()
train("swav", SwaVProjectionHead(8, 16, 8), lambda m: swav([m[2](z) for z in pair(m)], []), SwaVPrototypes(8, 6))
student, teacher = DINOProjectionHead(8, 16, 8, 12), DINOProjectionHead(8, 16, 8, 12)
deactivate_requires_grad(teacher)
dino = DINOLoss(output_dim=12)
train("dino", student, lambda m: dino([teacher(m[0](a)), teacher(m[0](b))], list(pair(m)), epoch=0))
update_momentum(student, teacher, m=cosine_schedule(1, 10, 0.99, 1))
print("teacher", f"{sum(p.abs().sum() for p in teacher.parameters()).item():.4f}")
