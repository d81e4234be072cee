"""Divergences between families."""

import math

import mica
from mica.distributions._kl_table import register_kl
from mica.distributions.bernoulli import Bernoulli
from mica.distributions.beta import Beta
from mica.distributions.binomial import Binomial
from mica.distributions.continuous_bernoulli import ContinuousBernoulli
from mica.distributions.exponential import Exponential
from mica.distributions.gamma import Gamma
from mica.distributions.gumbel import Gumbel
from mica.distributions.laplace import Laplace
from mica.distributions.normal import Normal
from mica.distributions.pareto import Pareto
from mica.distributions.poisson import Poisson
from mica.distributions.uniform import Uniform
from mica.distributions.utils import euler_constant as _gamma


def _infinite(parameter, p, *others):
    """Where p has mass that q has none for."""

    def divergence(a, b):
        return mica.full_like(getattr(a, parameter), math.inf)

    for q in others:
        register_kl(p, q)(divergence)


_infinite("concentration1", Beta, Pareto)
_infinite("probs", ContinuousBernoulli, Pareto)
_infinite("rate", Exponential, Beta, ContinuousBernoulli, Pareto, Uniform)
_infinite("concentration", Gamma, Beta, ContinuousBernoulli, Pareto, Uniform)
_infinite("loc", Gumbel, Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_infinite("loc", Laplace, Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_infinite("loc", Normal, Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_infinite("scale", Pareto, Beta, ContinuousBernoulli, Uniform)
_infinite("rate", Poisson, Bernoulli, Binomial)


def _x_log_x(x):
    return mica.special.xlogy(x, x)


def _mean_log(low, high):
    """The mean of log x over an interval."""
    width = high - low
    return (_x_log_x(high) - _x_log_x(low) - width) / width


def _log_gamma_norm(q):
    """The logarithm of a gamma density's normalizer."""
    return q.concentration.lgamma() - q.concentration * q.rate.log()


def _cross_normal(mean, variance, q):
    """The mean of -log of a normal density under a distribution of this mean and variance."""
    return q.scale.log() + 0.5 * math.log(2 * math.pi) + 0.5 * (variance + (mean - q.loc).pow(2)) / q.scale.pow(2)


def _cross_continuous_bernoulli(mean, q):
    return -mean * q.logits - mica.log1p(-q.probs) - q._cont_bern_log_norm()


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p, q):
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p, q):
    return -p.entropy() + _cross_continuous_bernoulli(p.mean, q)


@register_kl(Beta, Exponential)
def _beta_exponential(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Beta, Gamma)
def _beta_gamma(p, q):
    mean_log = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    return -p.entropy() + _log_gamma_norm(q) - (q.concentration - 1) * mean_log + q.rate * p.mean


@register_kl(Beta, Normal)
def _beta_normal(p, q):
    return -p.entropy() + _cross_normal(p.mean, p.variance, q)


@register_kl(Beta, Uniform)
def _beta_uniform(p, q):
    result = -p.entropy() + (q.high - q.low).log()
    return result.masked_fill((q.low > p.support.lower_bound) | (q.high < p.support.upper_bound), math.inf)


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_bernoulli_exponential(p, q):
    return -p.entropy() - mica.log(q.rate) + q.rate * p.mean


@register_kl(ContinuousBernoulli, Normal)
def _continuous_bernoulli_normal(p, q):
    return -p.entropy() + _cross_normal(p.mean, p.variance, q)


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p, q):
    # Infinite on torch's condition: a uniform distribution that ends inside, or with, the unit interval.
    result = -p.entropy() + (q.high - q.low).log()
    inside = (q.low >= p.support.lower_bound) | (q.high <= p.support.upper_bound)
    return mica.where(inside, mica.ones_like(result) * math.inf, result)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p, q):
    ratio = q.rate / p.rate
    shape = q.concentration
    return -shape * mica.log(ratio) + ratio + shape.lgamma() + shape * _gamma - (1 + _gamma)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p, q):
    product, place = p.rate * q.scale, q.loc / q.scale
    return product.log() - 1 - place + mica.exp(place) * product / (product + 1) + product.reciprocal()


@register_kl(Exponential, Normal)
def _exponential_normal(p, q):
    return -p.entropy() + _cross_normal(p.mean, p.variance, q)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p, q):
    product, place, shape = p.rate * q.scale, q.loc / q.scale, p.concentration
    own = (shape - 1) * shape.digamma() - shape.lgamma() - shape
    tail = mica.exp(place) * (1 + product.reciprocal()).pow(-shape) - place
    return own + product.log() + shape / product + tail


@register_kl(Gamma, Normal)
def _gamma_normal(p, q):
    return -p.entropy() + _cross_normal(p.mean, p.variance, q)


@register_kl(Gumbel, Normal)
def _gumbel_normal(p, q):
    ratio = p.scale / q.scale
    spread = (math.pi * ratio * 0.5).pow(2) / 3
    away = ((p.loc + p.scale * _gamma - q.loc) / q.scale).pow(2) * 0.5
    return -(ratio / math.sqrt(2 * math.pi)).log() + spread + away - (_gamma + 1)


@register_kl(Laplace, Normal)
def _laplace_normal(p, q):
    return -p.entropy() + _cross_normal(p.mean, p.variance, q)


@register_kl(Normal, Gumbel)
def _normal_gumbel(p, q):
    mean, place, squared = p.loc / q.scale, q.loc / q.scale, (p.scale / q.scale).pow(2)
    tail = mica.exp(-mean + 0.5 * squared + place)
    return -squared.log() * 0.5 + mean - place + tail - 0.5 * (1 + math.log(2 * math.pi))


@register_kl(Normal, Laplace)
def _normal_laplace(p, q):
    apart = p.loc - q.loc
    ratio = apart / p.scale
    near = math.sqrt(2 / math.pi) * p.scale * mica.exp(-0.5 * ratio.pow(2))
    far = apart * mica.erf(math.sqrt(0.5) * ratio)
    return -mica.log(p.scale / q.scale) + (near + far) / q.scale - 0.5 * (1 + math.log(0.5 * math.pi))


@register_kl(Pareto, Exponential)
def _pareto_exponential(p, q):
    product = p.scale * q.rate
    mean = p.alpha * product / (p.alpha - 1)
    result = (p.alpha / product).log() - p.alpha.reciprocal() + mean - 1
    return result.masked_fill(p.alpha <= 1, math.inf)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p, q):
    mean_log = p.scale.log() + p.alpha.reciprocal()
    mean = q.rate * p.alpha * p.scale / (p.alpha - 1)
    result = p.alpha.log() - mean_log + _log_gamma_norm(q) + (1 - q.concentration) * mean_log + mean - 1
    return result.masked_fill(p.alpha <= 1, math.inf)


@register_kl(Pareto, Normal)
def _pareto_normal(p, q):
    step = p.scale / (p.alpha - 1)
    spread = p.alpha * step.pow(2) / (p.alpha - 2)
    away = (p.alpha * step - q.loc).pow(2)
    own = (math.sqrt(2 * math.pi) * q.scale * p.alpha / p.scale).log() - p.alpha.reciprocal()
    return (own + (spread + away) / (2 * q.scale.pow(2)) - 1).masked_fill(p.alpha <= 2, math.inf)


@register_kl(Uniform, Beta)
def _uniform_beta(p, q):
    width = p.high - p.low
    below = (_x_log_x(1 - p.high) - _x_log_x(1 - p.low) + width) / width
    norm = q.concentration1.lgamma() + q.concentration0.lgamma() - (q.concentration1 + q.concentration0).lgamma()
    result = (q.concentration0 - 1) * below + norm - mica.log(width)
    result = result - (q.concentration1 - 1) * _mean_log(p.low, p.high)
    return result.masked_fill((p.high > q.support.upper_bound) | (p.low < q.support.lower_bound), math.inf)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p, q):
    # Infinite on torch's condition, with the bounds themselves.
    result = -p.entropy() + _cross_continuous_bernoulli(p.mean, q)
    outside = (p.high >= q.support.upper_bound) | (p.low <= q.support.lower_bound)
    return mica.where(outside, mica.ones_like(result) * math.inf, result)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p, q):
    result = q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log()
    return result.masked_fill(p.low < q.support.lower_bound, math.inf)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p, q):
    mean_log = _mean_log(p.low, p.high)
    result = _log_gamma_norm(q) - (p.high - p.low).log() + (1 - q.concentration) * mean_log
    result = result + q.rate * (p.high + p.low) / 2
    return result.masked_fill(p.low < q.support.lower_bound, math.inf)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p, q):
    ratio = q.scale / (p.high - p.low)
    high, low = (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return ratio.log() + 0.5 * (high + low) - ratio * (mica.exp(-high) - mica.exp(-low))


@register_kl(Uniform, Normal)
def _uniform_normal(p, q):
    return -p.entropy() + _cross_normal(p.mean, p.variance, q)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p, q):
    width = p.high - p.low
    result = _mean_log(p.low, p.high) * (q.alpha + 1) - (q.alpha * q.scale.pow(q.alpha) * width).log()
    return result.masked_fill(p.low < q.support.lower_bound, math.inf)
