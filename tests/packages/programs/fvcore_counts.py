"""fvcore: counts of operations and activations of modules, by operator and by module."""

import logging

import torch
from fvcore.nn import ActivationCountAnalysis, FlopCountAnalysis, flop_count_table, parameter_count
from torch import nn

logging.disable(logging.CRITICAL)
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, groups=2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 10),
).eval()
x = torch.randn(2, 3, 16, 16)
flops = FlopCountAnalysis(net, x)
print(flops.total(), dict(sorted(flops.by_operator().items())), dict(flops.by_module()))
print(dict(sorted(ActivationCountAnalysis(net, x).by_operator().items())))
print(flop_count_table(flops))
layer = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 16))
y = FlopCountAnalysis(layer, torch.randn(2, 5, 16))
print(y.total(), dict(sorted(y.by_operator().items())), dict(y.by_module_and_operator()["0"]))


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)

    def forward(self, x):
        q = self.q(x)
        return (q @ q.transpose(-1, -2)).softmax(-1) @ x


z = FlopCountAnalysis(Attends(), torch.randn(2, 5, 8))
print(z.total(), parameter_count(layer)[""])
up = nn.ConvTranspose2d(4, 6, 3, stride=2)
print(FlopCountAnalysis(up, torch.randn(1, 4, 5, 5)).total())
