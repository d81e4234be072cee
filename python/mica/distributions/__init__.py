"""Probability distributions: samples, densities and divergences, batched and differentiable.

Normal(loc, scale).rsample((100,)), Categorical(logits=x).log_prob(action), kl_divergence(p, q)
"""

from mica.distributions import constraint_registry, constraints, kl, transforms, utils  # noqa: F401
from mica.distributions.bernoulli import Bernoulli
from mica.distributions.beta import Beta
from mica.distributions.binomial import Binomial
from mica.distributions.categorical import Categorical
from mica.distributions.cauchy import Cauchy
from mica.distributions.chi2 import Chi2
from mica.distributions.constraint_registry import biject_to, transform_to
from mica.distributions.continuous_bernoulli import ContinuousBernoulli
from mica.distributions.dirichlet import Dirichlet
from mica.distributions.distribution import Distribution
from mica.distributions.exp_family import ExponentialFamily
from mica.distributions.exponential import Exponential
from mica.distributions.fishersnedecor import FisherSnedecor
from mica.distributions.gamma import Gamma
from mica.distributions.generalized_pareto import GeneralizedPareto
from mica.distributions.geometric import Geometric
from mica.distributions.gumbel import Gumbel
from mica.distributions.half_cauchy import HalfCauchy
from mica.distributions.half_normal import HalfNormal
from mica.distributions.independent import Independent
from mica.distributions.inverse_gamma import InverseGamma
from mica.distributions.kl import kl_divergence, register_kl
from mica.distributions.kumaraswamy import Kumaraswamy
from mica.distributions.laplace import Laplace
from mica.distributions.lkj_cholesky import LKJCholesky
from mica.distributions.log_normal import LogNormal
from mica.distributions.logistic_normal import LogisticNormal
from mica.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from mica.distributions.mixture_same_family import MixtureSameFamily
from mica.distributions.multinomial import Multinomial
from mica.distributions.multivariate_normal import MultivariateNormal
from mica.distributions.negative_binomial import NegativeBinomial
from mica.distributions.normal import Normal
from mica.distributions.one_hot_categorical import OneHotCategorical, OneHotCategoricalStraightThrough
from mica.distributions.pareto import Pareto
from mica.distributions.poisson import Poisson
from mica.distributions.relaxed_bernoulli import RelaxedBernoulli
from mica.distributions.relaxed_categorical import RelaxedOneHotCategorical
from mica.distributions.studentT import StudentT
from mica.distributions.transformed_distribution import TransformedDistribution
from mica.distributions.transforms import *  # noqa: F403
from mica.distributions.uniform import Uniform
from mica.distributions.von_mises import VonMises
from mica.distributions.weibull import Weibull
from mica.distributions.wishart import Wishart

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ContinuousBernoulli",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "StudentT",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "kl_divergence",
    "register_kl",
    "transform_to",
    *transforms.__all__,
]
