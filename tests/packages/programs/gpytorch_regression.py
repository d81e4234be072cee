"""gpytorch: exact and variational Gaussian processes."""

import gpytorch
import torch

torch.manual_seed(0)
x = torch.linspace(0, 1, 24)
y = torch.sin(x * 6.28) + 0.1 * torch.randn(24)


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Exact(x, y, likelihood)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for step in range(12):
    optimizer.zero_grad()
    loss = -mll(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print("exact", loss.item(), model.covar_module.base_kernel.lengthscale.item())
model.eval()
likelihood.eval()
with torch.no_grad():
    prediction = likelihood(model(torch.linspace(0, 1, 5)))
    print("prediction", prediction.mean.tolist(), prediction.variance.tolist())


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, points):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(points.size(0))
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
        self.mean_module, self.covar_module = (
            gpytorch.means.ZeroMean(),
            gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel()),
        )

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


model, likelihood = Variational(x[::4].clone()), gpytorch.likelihoods.GaussianLikelihood()
optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=24)
for _ in range(6):
    optimizer.zero_grad()
    loss = -elbo(model(x), y)
    loss.backward()
    optimizer.step()
print("variational", loss.item())
