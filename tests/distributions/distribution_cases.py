"""Distributions, divergences and transforms as functions of a library that speaks torch; what they give is recorded."""

import math
import re

P = [0.3, 0.9, 2.5]
Q = [0.7, 1.6, 0.4]
U = [0.2, 0.5, 0.85]
MATRIX = [[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 0.8]]
FACTOR = [[1.2, 0.0, 0.0], [0.4, 0.9, 0.0], [-0.3, 0.2, 0.7]]

# name -> maker(torch, numbers): `numbers` makes a tensor that requires a gradient.
DISTRIBUTIONS = {
    "Bernoulli": lambda t, n: t.distributions.Bernoulli(n(U)),
    "Bernoulli logits": lambda t, n: t.distributions.Bernoulli(logits=n([-1.0, 0.0, 2.0])),
    "Bernoulli number": lambda t, n: t.distributions.Bernoulli(0.3),
    "Beta": lambda t, n: t.distributions.Beta(n(P), n(Q)),
    "Beta number": lambda t, n: t.distributions.Beta(0.5, 2.0),
    "Binomial": lambda t, n: t.distributions.Binomial(12, n(U)),
    "Binomial counts": lambda t, n: t.distributions.Binomial(t.tensor([[3.0], [40.0]]), logits=n([-1.0, 0.5, 2.0])),
    "Categorical": lambda t, n: t.distributions.Categorical(n([[0.2, 0.3, 0.5], [3.0, 1.0, 2.0]])),
    "Categorical logits": lambda t, n: t.distributions.Categorical(logits=n([0.1, -2.0, 1.5, 0.0])),
    "Cauchy": lambda t, n: t.distributions.Cauchy(n(P), n(Q)),
    "Chi2": lambda t, n: t.distributions.Chi2(n([0.5, 3.0, 10.0])),
    "ContinuousBernoulli": lambda t, n: t.distributions.ContinuousBernoulli(n([0.1, 0.5, 0.9])),
    "ContinuousBernoulli logits": lambda t, n: t.distributions.ContinuousBernoulli(logits=n([-3.0, 0.001, 2.0])),
    "Dirichlet": lambda t, n: t.distributions.Dirichlet(n([[0.5, 1.5, 3.0], [2.0, 2.0, 0.2]])),
    "Exponential": lambda t, n: t.distributions.Exponential(n(P)),
    "Exponential number": lambda t, n: t.distributions.Exponential(2.0),
    "FisherSnedecor": lambda t, n: t.distributions.FisherSnedecor(n([3.0, 5.0, 8.0]), n([2.0, 6.0, 9.0])),
    "Gamma": lambda t, n: t.distributions.Gamma(n(P), n(Q)),
    "GeneralizedPareto": lambda t, n: t.distributions.GeneralizedPareto(n(P), n(Q), n([0.0, 0.3, -0.4])),
    "Geometric": lambda t, n: t.distributions.Geometric(n(U)),
    "Geometric logits": lambda t, n: t.distributions.Geometric(logits=n([-1.0, 0.0, 2.0])),
    "Gumbel": lambda t, n: t.distributions.Gumbel(n(P), n(Q)),
    "HalfCauchy": lambda t, n: t.distributions.HalfCauchy(n(P)),
    "HalfNormal": lambda t, n: t.distributions.HalfNormal(n(P)),
    "Independent": lambda t, n: t.distributions.Independent(t.distributions.Normal(n([P, Q]), n([Q, P])), 1),
    "InverseGamma": lambda t, n: t.distributions.InverseGamma(n([0.8, 1.5, 4.0]), n(Q)),
    "Kumaraswamy": lambda t, n: t.distributions.Kumaraswamy(n(P), n(Q)),
    "LKJCholesky": lambda t, n: t.distributions.LKJCholesky(3, n([0.5, 2.0])),
    "Laplace": lambda t, n: t.distributions.Laplace(n(P), n(Q)),
    "LogNormal": lambda t, n: t.distributions.LogNormal(n(P), n(Q)),
    "LogisticNormal": lambda t, n: t.distributions.LogisticNormal(n([P, Q]), n([Q, P])),
    "LowRankMultivariateNormal": lambda t, n: t.distributions.LowRankMultivariateNormal(
        n(P), n([[1.0], [0.5], [-0.2]]), n(Q)
    ),
    "MixtureSameFamily": lambda t, n: t.distributions.MixtureSameFamily(
        t.distributions.Categorical(n(U)), t.distributions.Normal(n(P), n(Q))
    ),
    "MixtureSameFamily vectors": lambda t, n: t.distributions.MixtureSameFamily(
        t.distributions.Categorical(n([0.4, 0.6])),
        t.distributions.Independent(t.distributions.Normal(n([P, Q]), n([Q, P])), 1),
    ),
    "Multinomial": lambda t, n: t.distributions.Multinomial(7, n([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])),
    "MultivariateNormal": lambda t, n: t.distributions.MultivariateNormal(n([P, Q]), n(MATRIX)),
    "MultivariateNormal precision": lambda t, n: t.distributions.MultivariateNormal(n(P), precision_matrix=n(MATRIX)),
    "MultivariateNormal factor": lambda t, n: t.distributions.MultivariateNormal(n(P), scale_tril=n([FACTOR, FACTOR])),
    "NegativeBinomial": lambda t, n: t.distributions.NegativeBinomial(5, n(U)),
    "NegativeBinomial logits": lambda t, n: t.distributions.NegativeBinomial(n([1.0, 3.5, 0.2]), logits=n(P)),
    "Normal": lambda t, n: t.distributions.Normal(n(P), n(Q)),
    "Normal numbers": lambda t, n: t.distributions.Normal(0.5, 2.0),
    "OneHotCategorical": lambda t, n: t.distributions.OneHotCategorical(n([[0.2, 0.3, 0.5], [3.0, 1.0, 2.0]])),
    "OneHotCategoricalStraightThrough": lambda t, n: t.distributions.OneHotCategoricalStraightThrough(logits=n(P)),
    "Pareto": lambda t, n: t.distributions.Pareto(n(Q), n([0.8, 1.6, 3.5])),
    "Poisson": lambda t, n: t.distributions.Poisson(n([0.5, 4.0, 30.0])),
    "RelaxedBernoulli": lambda t, n: t.distributions.RelaxedBernoulli(t.tensor([0.7]), n(U)),
    "RelaxedOneHotCategorical": lambda t, n: t.distributions.RelaxedOneHotCategorical(t.tensor(0.7), logits=n([P, Q])),
    "StudentT": lambda t, n: t.distributions.StudentT(n([0.8, 1.5, 6.0]), n(P), n(Q)),
    "TransformedDistribution": lambda t, n: t.distributions.TransformedDistribution(
        t.distributions.Normal(n(P), n(Q)),
        [t.distributions.AffineTransform(1.0, -2.0), t.distributions.SigmoidTransform()],
    ),
    "Uniform": lambda t, n: t.distributions.Uniform(n([0.0, -1.0, 2.0]), n([1.0, 3.0, 2.5])),
    "VonMises": lambda t, n: t.distributions.VonMises(n(P), n([0.01, 1.0, 8.0])),
    "Weibull": lambda t, n: t.distributions.Weibull(n(P), n(Q)),
    "Wishart": lambda t, n: t.distributions.Wishart(n(5.5), n(MATRIX)),
}

VECTOR = [-1.2, 0.3, 2.1]
# name -> (maker(torch), a value of the domain)
TRANSFORMS = {
    "Abs": (lambda t: t.distributions.AbsTransform(), VECTOR),
    "Affine": (lambda t: t.distributions.AffineTransform(1.0, -2.0), VECTOR),
    "Affine events": (lambda t: t.distributions.AffineTransform(t.tensor(P), t.tensor(Q), event_dim=1), [VECTOR, P]),
    "Cat": (
        lambda t: t.distributions.CatTransform(
            [t.distributions.ExpTransform(), t.distributions.AffineTransform(1.0, 3.0)], dim=-1, lengths=[1, 2]
        ),
        VECTOR,
    ),
    "Compose": (
        lambda t: t.distributions.ComposeTransform(
            [t.distributions.ExpTransform(), t.distributions.AffineTransform(-1.0, 2.0)]
        ),
        VECTOR,
    ),
    "CorrCholesky": (lambda t: t.distributions.CorrCholeskyTransform(), VECTOR),
    "CumulativeDistribution": (
        lambda t: t.distributions.CumulativeDistributionTransform(t.distributions.Normal(0.5, 2.0)),
        VECTOR,
    ),
    "Exp": (lambda t: t.distributions.ExpTransform(), VECTOR),
    "Independent": (lambda t: t.distributions.IndependentTransform(t.distributions.ExpTransform(), 1), VECTOR),
    "LowerCholesky": (lambda t: t.distributions.LowerCholeskyTransform(), MATRIX),
    "Power": (lambda t: t.distributions.PowerTransform(2.5), P),
    "Reshape": (lambda t: t.distributions.ReshapeTransform((3,), (3, 1)), VECTOR),
    "Sigmoid": (lambda t: t.distributions.SigmoidTransform(), VECTOR),
    "Softmax": (lambda t: t.distributions.SoftmaxTransform(), VECTOR),
    "Softplus": (lambda t: t.distributions.SoftplusTransform(), VECTOR),
    "Stack": (
        lambda t: t.distributions.StackTransform(
            [t.distributions.ExpTransform(), t.distributions.TanhTransform(), t.distributions.SigmoidTransform()],
            dim=-1,
        ),
        VECTOR,
    ),
    "StickBreaking": (lambda t: t.distributions.StickBreakingTransform(), VECTOR),
    "Tanh": (lambda t: t.distributions.TanhTransform(), [-1.2, 0.3, 0.9]),
}

PAIRS = [
    "Bernoulli", "Beta", "Binomial", "Categorical logits", "Cauchy", "ContinuousBernoulli", "Dirichlet", "Exponential",
    "Gamma", "Geometric", "Gumbel", "HalfNormal", "Independent", "Laplace", "LowRankMultivariateNormal",
    "MultivariateNormal", "Normal", "OneHotCategorical", "Pareto", "Poisson", "TransformedDistribution", "Uniform",
]  # fmt: skip
FACTS = ("mean", "mode", "variance", "stddev")


def listed(value):
    """A tensor as lists, with its dtype and shape."""
    shape = [int(s) for s in value.shape]
    numbers = [
        v if isinstance(v, (int, bool)) or math.isfinite(v) else str(v) for v in value.detach().reshape(-1).tolist()
    ]
    return [str(value.dtype), shape, numbers]


def attempt(call):
    """What a call gives, or the type of its error."""
    try:
        return call()
    except (NotImplementedError, ValueError, AttributeError, RuntimeError) as e:
        return f"{type(e).__name__}"


def numbers_of(t, made):
    def numbers(values):
        x = t.tensor(values, requires_grad=True)
        made.append(x)
        return x

    return numbers


def _scored(t, d):
    """A seeded sample, its log probability, and what both mean for the parameters."""
    t.manual_seed(11)
    sample = d.sample((2,))
    facts = {"sample": listed(sample), "log_prob": listed(d.log_prob(sample))}
    for name in ("cdf", "icdf"):
        inside = sample if name == "cdf" else t.tensor([[0.3], [0.8]])
        facts[name] = attempt(lambda name=name, inside=inside: listed(getattr(d, name)(inside)))
    return facts


def distribution_facts(t, name):
    """Everything a distribution says, as plain lists."""
    made = []
    d = DISTRIBUTIONS[name](t, numbers_of(t, made))
    facts = {"repr": repr(d), "shapes": [list(d.batch_shape), list(d.event_shape)], **_scored(t, d)}
    for fact in FACTS:
        facts[fact] = attempt(lambda fact=fact: listed(getattr(d, fact)))
    facts["entropy"] = attempt(lambda: listed(d.entropy()))
    facts["perplexity"] = attempt(lambda: listed(d.perplexity()))
    facts["support"] = attempt(lambda: re.sub(r"Backward\d", "Backward", repr(d.support)))
    facts["enumerated"] = attempt(lambda: listed(d.enumerate_support()))
    facts["has"] = [d.has_rsample, d.has_enumerate_support]
    wide = d.expand((2, *d.batch_shape))
    t.manual_seed(12)
    sample = wide.sample()
    facts["expanded"] = [listed(sample), listed(wide.log_prob(sample)), repr(wide)]
    return facts


def gradient_facts(t, name):
    """The gradients of a log probability, and of a sample where it has them, by the parameters."""
    made = []
    d = DISTRIBUTIONS[name](t, numbers_of(t, made))
    t.manual_seed(13)
    value = d.sample()
    scored = d.log_prob(value)
    facts = {}
    if made and scored.requires_grad:
        scored.sum().backward()
        facts["log_prob"] = [None if x.grad is None else listed(x.grad) for x in made]
    if d.has_rsample and made:
        made = []
        d = DISTRIBUTIONS[name](t, numbers_of(t, made))
        t.manual_seed(14)
        drawn = d.rsample()
        weights = t.linspace(0.5, 1.5, drawn.numel()).reshape(drawn.shape)
        (drawn * weights).sum().backward()
        facts["rsample"] = [None if x.grad is None else listed(x.grad) for x in made]
    return facts


def divergence_facts(t, first, second):
    """A divergence and its gradient, or the type of its error."""
    made = []
    p, q = (DISTRIBUTIONS[name](t, numbers_of(t, made)) for name in (first, second))

    def diverge():
        value = t.distributions.kl_divergence(p, q)
        return listed(value)

    return attempt(diverge)


def transform_facts(t, name):
    """A transform there and back, with its Jacobian, shapes and names."""
    maker, value = TRANSFORMS[name]
    transform, x = maker(t), t.tensor(value)
    y = transform(x)
    return {
        "repr": [repr(transform), repr(transform.inv)],
        "there": listed(y),
        "back": listed(transform.inv(y)),
        "jacobian": attempt(lambda: listed(transform.log_abs_det_jacobian(x, y))),
        "inverse": attempt(lambda: listed(transform.inv.log_abs_det_jacobian(y, x))),
        "shapes": [attempt(lambda: list(transform.forward_shape(x.shape))), list(transform.inverse_shape(y.shape))],
        "domains": [attempt(lambda: repr(transform.domain)), attempt(lambda: repr(transform.codomain))],
        "sign": attempt(lambda: str(transform.sign)),
        "bijective": bool(transform.bijective),
    }
