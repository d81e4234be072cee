"""pyro: variational inference and Hamiltonian Monte Carlo on small models."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal, AutoNormal
from pyro.optim import Adam

pyro.set_rng_seed(0)
x = torch.linspace(-1, 1, 30)
y = 2 * x + 1 + 0.1 * torch.randn(30)


def model(x, y=None):
    slope, shift = pyro.sample("slope", dist.Normal(0.0, 3.0)), pyro.sample("shift", dist.Normal(0.0, 3.0))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        return pyro.sample("obs", dist.Normal(slope * x + shift, scale), obs=y)


for guide_type in (AutoNormal, AutoDiagonalNormal):
    pyro.clear_param_store()
    pyro.set_rng_seed(1)
    guide = guide_type(model)
    svi = SVI(model, guide, Adam({"lr": 0.05}), Trace_ELBO(num_particles=2, vectorize_particles=False))
    losses = [svi.step(x, y) for _ in range(40)]
    print(guide_type.__name__, losses[0], losses[-1])
    print({name: round(value.item(), 3) for name, value in sorted(guide.median().items())})
samples = Predictive(model, guide=guide, num_samples=8)(x)
print("predicted", tuple(samples["obs"].shape), samples["obs"].mean().item())
pyro.clear_param_store()
pyro.set_rng_seed(2)
mcmc = MCMC(NUTS(model, max_tree_depth=4), num_samples=10, warmup_steps=10, disable_progbar=True)
mcmc.run(x, y)
print("nuts", sorted(mcmc.get_samples()), tuple(mcmc.get_samples()["slope"].shape))
