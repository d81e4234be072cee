"""torchcde: neural differential equations driven by data, and the interpolation of paths with gaps."""

import torch
import torchcde
from torch import nn

torch.manual_seed(0)
t = torch.linspace(0, 1, 12)
x = torch.stack([t.expand(6, -1), torch.sin(5 * t + torch.rand(6, 1) * 3), torch.randn(6, 12).cumsum(1)], -1)
y = (x[:, -1, 1:2] > 0).float()


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 12), nn.Tanh())

    def forward(self, t, z):
        return self.net(z).view(*z.shape[:-1], 4, 3)


for name, coeffs, make in (
    ("cubic", torchcde.hermite_cubic_coefficients_with_backward_differences(x), torchcde.CubicSpline),
    ("natural", torchcde.natural_cubic_coeffs(x), torchcde.CubicSpline),
    ("linear", torchcde.linear_interpolation_coeffs(x, rectilinear=0), torchcde.LinearInterpolation),
):
    torch.manual_seed(1)
    field, start, end = Field(), nn.Linear(3, 4), nn.Linear(4, 1)
    parameters = [*field.parameters(), *start.parameters(), *end.parameters()]
    optimizer = torch.optim.Adam(parameters, 0.02)
    losses = []
    for step in range(4):
        path = make(coeffs)
        z = torchcde.cdeint(
            path,
            field,
            start(path.evaluate(path.interval[0])),
            path.interval,
            adjoint=step % 2 == 1,
            method="rk4",
            options={"step_size": 0.25},
        )
        loss = nn.functional.binary_cross_entropy_with_logits(end(z[:, 1]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(f"{loss.item():.5f}")
    print(name, tuple(coeffs.shape), losses)
holes = x.clone()
holes[0, 3:5, 1] = float("nan")
print(
    "filled",
    f"{torchcde.linear_interpolation_coeffs(holes).abs().sum():.4f} {torchcde.natural_cubic_coeffs(holes).abs().sum():.4f}",
)
