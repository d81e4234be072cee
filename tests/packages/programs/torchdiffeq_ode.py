"""torchdiffeq: neural ODEs with fixed and adaptive steps, with the adjoint."""

import torch
from torchdiffeq import odeint, odeint_adjoint

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


class Flow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net

    def forward(self, t, y):
        return self.net(y) * torch.cos(t)


flow, start, times = Flow(), torch.randn(5, 2), torch.linspace(0, 1, 6)
for method in ("dopri5", "rk4", "euler", "midpoint", "bosh3"):
    print(method, odeint(flow, start, times, method=method)[-1].sum().item())
for solve in (odeint, odeint_adjoint):
    net.zero_grad()
    solve(flow, start, times, rtol=1e-5, atol=1e-6).pow(2).mean().backward()
    print(solve.__name__, net[0].weight.grad.abs().sum().item())
