"""Distributions on torch and on Mica from one seed, at shapes and parameters that the records do not have."""

import warnings

import mica
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

# name -> (maker(library, p, q, u), number of samples): p and q are positive, u lies in (0, 1)
FAMILIES = {
    "Bernoulli": lambda D, p, q, u: D.Bernoulli(u),
    "Beta": lambda D, p, q, u: D.Beta(p, q),
    "Binomial": lambda D, p, q, u: D.Binomial(30, u),
    "Categorical": lambda D, p, q, u: D.Categorical(p),
    "Cauchy": lambda D, p, q, u: D.Cauchy(p, q),
    "Chi2": lambda D, p, q, u: D.Chi2(p),
    "ContinuousBernoulli": lambda D, p, q, u: D.ContinuousBernoulli(u),
    "Dirichlet": lambda D, p, q, u: D.Dirichlet(p),
    "Exponential": lambda D, p, q, u: D.Exponential(p),
    "FisherSnedecor": lambda D, p, q, u: D.FisherSnedecor(p, q),
    "Gamma": lambda D, p, q, u: D.Gamma(p, q),
    "Geometric": lambda D, p, q, u: D.Geometric(u),
    "Gumbel": lambda D, p, q, u: D.Gumbel(p, q),
    "HalfNormal": lambda D, p, q, u: D.HalfNormal(p),
    "Laplace": lambda D, p, q, u: D.Laplace(p, q),
    "LogNormal": lambda D, p, q, u: D.LogNormal(p, q),
    "NegativeBinomial": lambda D, p, q, u: D.NegativeBinomial(p, u),
    "Normal": lambda D, p, q, u: D.Normal(p, q),
    "Pareto": lambda D, p, q, u: D.Pareto(p, q),
    "Poisson": lambda D, p, q, u: D.Poisson(p * 5),
    "StudentT": lambda D, p, q, u: D.StudentT(p, q),
    "Uniform": lambda D, p, q, u: D.Uniform(-p, q),
    "VonMises": lambda D, p, q, u: D.VonMises(p, q),
    "Weibull": lambda D, p, q, u: D.Weibull(p, q),
}


def close(ours, theirs, tolerance):
    theirs = mica.tensor(theirs.detach().tolist(), dtype=ours.dtype).reshape(tuple(theirs.shape))
    mica.testing.assert_close(ours.detach(), theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (40, 30)], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_family(name, shape, dtype):
    results = []
    for lib in (mica, torch):
        lib.manual_seed(21)
        p, q, u = (lib.rand(*shape, dtype=getattr(lib, dtype)) * 3 + 0.1 for _ in range(3))
        d = FAMILIES[name](lib.distributions, p, q, (u / 3.4).clamp(0.01, 0.99))
        sample = d.sample((3,))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append((sample, d.log_prob(sample)))
    tolerance = 2e-4 if dtype == "float32" else 1e-9
    for ours, theirs in zip(*results, strict=True):
        close(ours, theirs, tolerance)


@pytest.mark.parametrize("value", [-1.0, 0.0, 0.5, 1.0, 3.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", FAMILIES)
def test_values_at_and_beyond_the_edges(name, value):
    """The same error, or the same density."""
    results = []
    for lib in (mica, torch):
        p, q, u = lib.full((2,), 1.5), lib.full((2,), 0.7), lib.full((2,), 0.3)
        d = FAMILIES[name](lib.distributions, p, q, u)
        shape = d.event_shape or (2,)
        try:
            results.append(d.log_prob(lib.full(tuple(shape), value)))
        except (ValueError, IndexError, RuntimeError) as e:
            results.append((type(e).__name__, str(e).split("but found")[0]))
    if isinstance(results[1], tuple):
        assert results[0] == results[1]
    else:
        close(results[0], results[1], 1e-5)
