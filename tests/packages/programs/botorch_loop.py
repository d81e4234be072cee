"""botorch: a Gaussian process is fitted and the next points are chosen by several acquisition functions."""

import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import IIDNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
x = torch.rand(8, 2)
y = -((x - 0.4) ** 2).sum(-1, keepdim=True)
for _ in range(2):
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs={"options": {"maxiter": 30}})
    posterior = model.posterior(torch.tensor([[0.4, 0.4]]))
    print("posterior", round(posterior.mean.item(), 3), posterior.variance.item() >= 0)
    found = torch.stack(
        [
            LogExpectedImprovement(model, y.max())(torch.tensor([[[0.3, 0.5]]])),
            UpperConfidenceBound(model, 0.1)(torch.tensor([[[0.3, 0.5]]])),
        ]
    )
    print("acquisition finite", bool(found.isfinite().all()))
    start = torch.rand(4, 1, 2)
    best, value = optimize_acqf(
        UpperConfidenceBound(model, 0.1),
        torch.tensor([[0.0, 0], [1, 1]]),
        q=1,
        num_restarts=4,
        raw_samples=None,
        batch_initial_conditions=start,
    )
    print("best", [round(v, 2) for v in best[0].tolist()])
    x, y = torch.cat([x, best]), torch.cat([y, -((best - 0.4) ** 2).sum(-1, keepdim=True)])
sampler = IIDNormalSampler(torch.Size([16]), seed=1)
print("many at once", qExpectedImprovement(model, y.max(), sampler)(torch.rand(1, 2, 2)).shape)
