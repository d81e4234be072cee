"""higher: gradients through an optimizer; torchsde, nflows, e3nn, entmax, torchcrf and torch-ema train."""

import higher
import torch
import torchsde
from e3nn import o3
from e3nn.nn import FullyConnectedNet
from entmax import entmax15, sparsemax
from nflows.distributions import StandardNormal
from nflows.flows import Flow
from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, RandomPermutation
from torch_ema import ExponentialMovingAverage
from torchcrf import CRF

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
rate = torch.tensor(0.1, requires_grad=True)
x, y = torch.randn(8, 3), torch.randn(8, 1)
with higher.innerloop_ctx(net, torch.optim.SGD(net.parameters(), lr=0.1), override={"lr": [rate]}) as (
    inner,
    optimizer,
):
    for _ in range(3):
        optimizer.step((inner(x) - y).pow(2).mean())
    loss = (inner(x) - y).pow(2).mean()
    print("higher", loss.item(), torch.autograd.grad(loss, rate)[0].item())


class Equation(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.drift, self.spread = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def f(self, t, y):
        return self.drift(y)

    def g(self, t, y):
        return self.spread(y).sigmoid() * 0.1


torch.manual_seed(1)
equation = Equation()
path = torchsde.sdeint(
    equation,
    torch.ones(4, 2),
    torch.linspace(0, 1, 5),
    method="euler",
    dt=0.1,
    bm=torchsde.BrownianInterval(0.0, 1.0, (4, 2), entropy=3),
)
path.sum().backward()
print("sde", tuple(path.shape), equation.drift.weight.grad.shape)
torch.manual_seed(2)
flow = Flow(CompositeTransform([MaskedAffineAutoregressiveTransform(2, 8), RandomPermutation(2)]), StandardNormal([2]))
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
data = torch.randn(32, 2) * 0.5 + 1
for _ in range(3):
    loss = -flow.log_prob(data).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("flow", loss.item(), tuple(flow.sample(5).shape))
torch.manual_seed(3)
product = o3.FullyConnectedTensorProduct("4x0e + 2x1o", "1x0e + 1x1o", "3x0e + 2x1o")
a, b = o3.Irreps("4x0e + 2x1o").randn(5, -1), o3.spherical_harmonics("0e + 1o", torch.randn(5, 3), True)
out = product(a, b)
rotation = o3.rand_matrix()
turned = product(a @ product.irreps_in1.D_from_matrix(rotation).T, b @ product.irreps_in2.D_from_matrix(rotation).T)
print(
    "e3nn",
    out.abs().sum().item(),
    bool(torch.allclose(turned, out @ product.irreps_out.D_from_matrix(rotation).T, atol=1e-4)),
)
print("network", FullyConnectedNet([2, 8, 3], torch.relu)(torch.randn(4, 2)).sum().item())
z = torch.randn(3, 6, requires_grad=True)
print(
    "entmax",
    sparsemax(z).sum().item(),
    entmax15(z).max().item(),
    torch.autograd.grad(entmax15(z).pow(2).sum(), z)[0].abs().sum().item(),
)
crf = CRF(4, batch_first=True)
scores, tags = torch.randn(2, 6, 4), torch.randint(0, 4, (2, 6))
print("crf", crf(scores, tags).item(), crf.decode(scores))
average = ExponentialMovingAverage(net.parameters(), decay=0.9)
net.weight.data.add_(1)
average.update()
with average.average_parameters():
    print("ema", net.weight.sum().item())
