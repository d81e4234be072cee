"""Divergences within a family."""

import math

import mica
from mica.distributions._kl_table import kl_divergence, register_kl
from mica.distributions.bernoulli import Bernoulli
from mica.distributions.beta import Beta
from mica.distributions.binomial import Binomial
from mica.distributions.categorical import Categorical
from mica.distributions.cauchy import Cauchy
from mica.distributions.continuous_bernoulli import ContinuousBernoulli
from mica.distributions.dirichlet import Dirichlet
from mica.distributions.exp_family import ExponentialFamily
from mica.distributions.exponential import Exponential
from mica.distributions.gamma import Gamma
from mica.distributions.geometric import Geometric
from mica.distributions.gumbel import Gumbel
from mica.distributions.half_normal import HalfNormal
from mica.distributions.independent import Independent
from mica.distributions.laplace import Laplace
from mica.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _batch_lowrank_logdet,
    _batch_lowrank_mahalanobis,
)
from mica.distributions.multivariate_normal import MultivariateNormal, _batch_mahalanobis, log_diagonal
from mica.distributions.normal import Normal
from mica.distributions.one_hot_categorical import OneHotCategorical
from mica.distributions.pareto import Pareto
from mica.distributions.poisson import Poisson
from mica.distributions.transformed_distribution import TransformedDistribution
from mica.distributions.uniform import Uniform
from mica.distributions.utils import _sum_rightmost
from mica.distributions.utils import euler_constant as _gamma
from mica.nn.functional import softplus


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    one = one.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0)
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return one + zero.masked_fill(q.probs == 1, math.inf).masked_fill(p.probs == 1, 0)


@register_kl(Beta, Beta)
def _beta(p, q):
    total_p, total_q = p.concentration1 + p.concentration0, q.concentration1 + q.concentration0
    log_q = q.concentration1.lgamma() + q.concentration0.lgamma() + total_p.lgamma()
    log_p = p.concentration1.lgamma() + p.concentration0.lgamma() + total_q.lgamma()
    slope1 = (p.concentration1 - q.concentration1) * mica.digamma(p.concentration1)
    slope0 = (p.concentration0 - q.concentration0) * mica.digamma(p.concentration0)
    return log_q - log_p + slope1 + slope0 + (total_q - total_p) * mica.digamma(total_p)


@register_kl(Binomial, Binomial)
def _binomial(p, q):
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return kl.masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    terms = p.probs * (p.logits - q.logits)
    return terms.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return _categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p, q):
    own = p._cont_bern_log_norm() + mica.log1p(-p.probs)
    return p.mean * (p.logits - q.logits) + own - q._cont_bern_log_norm() - mica.log1p(-q.probs)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    total_p, total_q = p.concentration.sum(-1), q.concentration.sum(-1)
    parts = (p.concentration.lgamma() - q.concentration.lgamma()).sum(-1)
    slopes = p.concentration.digamma() - total_p.digamma().unsqueeze(-1)
    return total_p.lgamma() - total_q.lgamma() - parts + ((p.concentration - q.concentration) * slopes).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p, q):
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot "
            "be computed using Bregman divergences"
        )
    mine = [v.detach().requires_grad_() for v in p._natural_params]
    theirs = q._natural_params
    with mica.enable_grad():
        normalizer = p._log_normalizer(*mine)
        slopes = mica.autograd.grad(normalizer.sum(), mine, create_graph=True)
    result = q._log_normalizer(*theirs) - normalizer
    for a, b, slope in zip(mine, theirs, slopes, strict=True):
        result = result - _sum_rightmost((b - a) * slope, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma_gamma(p, q):
    rates = q.concentration * (p.rate / q.rate).log()
    shapes = mica.lgamma(q.concentration) - mica.lgamma(p.concentration)
    slope = (p.concentration - q.concentration) * mica.digamma(p.concentration)
    return rates + shapes + slope + (q.rate - p.rate) * (p.concentration / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    scales, mine, theirs = p.scale / q.scale, p.loc / q.scale, q.loc / q.scale
    tail = mica.exp(theirs + (1 + scales).lgamma() - mine)
    return -scales.log() - theirs + mine + scales * _gamma + tail - (1 + _gamma)


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - mica.log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p, q):
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    scales, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return -scales.log() + apart / q.scale + scales * mica.exp(-apart / p.scale) - 1


@register_kl(Normal, Normal)
def _normal(p, q):
    variances = (p.scale / q.scale).pow(2)
    return 0.5 * (variances + ((p.loc - q.loc) / q.scale).pow(2) - 1 - variances.log())


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Pareto, Pareto)
def _pareto(p, q):
    powers = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - powers.log() + powers - 1
    return result.masked_fill(p.support.lower_bound < q.support.lower_bound, math.inf)


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return result.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# ---------------------------------------------------------------------------------------- multivariate normal
def _check_events(p, q, kind):
    if p.event_shape != q.event_shape:
        gap = " " * 26  # torch's words have a line's indent in them
        raise ValueError(f"KL-divergence between two {kind} with{gap}different event shapes cannot be computed")


def _squares(matrix):
    """The trace of X X'."""
    return matrix.reshape(matrix.shape[:-2] + (-1,)).pow(2).sum(-1)


def _solved(factor, matrix):
    batch = mica.broadcast_shapes(factor.shape[:-2], matrix.shape[:-2])
    return mica.linalg.solve_triangular(
        factor.expand(batch + factor.shape[-2:]), matrix.expand(batch + matrix.shape[-2:]), upper=False
    )


def _lowrank(d):
    return d._unbroadcasted_cov_factor, d._unbroadcasted_cov_diag


def _log_det(d):
    if isinstance(d, LowRankMultivariateNormal):
        return _batch_lowrank_logdet(*_lowrank(d), d._capacitance_tril)
    return 2 * log_diagonal(d._unbroadcasted_scale_tril)


def _under_lowrank(q):
    """W' D^-1, solved by the capacitance: the inverse covariance of q is D^-1 less its square."""
    return mica.linalg.solve_triangular(
        q._capacitance_tril, _lowrank(q)[0].mT / _lowrank(q)[1].unsqueeze(-2), upper=False
    )


def _divergence(p, q, trace, squared):
    return 0.5 * (_log_det(q) - _log_det(p) + trace + squared - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _lowrank_lowrank(p, q):
    _check_events(p, q, "Low Rank Multivariate Normals")
    (own, diag), (_, under) = _lowrank(p), _lowrank(q)
    solved = _under_lowrank(q)
    trace = (
        (diag / under).sum(-1)
        + _squares(own * under.rsqrt().unsqueeze(-1))
        - _squares(solved * diag.sqrt().unsqueeze(-2))
        - _squares(solved.matmul(own))
    )
    return _divergence(p, q, trace, _batch_lowrank_mahalanobis(*_lowrank(q), q.loc - p.loc, q._capacitance_tril))


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _full_lowrank(p, q):
    _check_events(p, q, "(Low Rank) Multivariate Normals")
    factor, under = p._unbroadcasted_scale_tril, _lowrank(q)[1]
    trace = _squares(factor * under.rsqrt().unsqueeze(-1)) - _squares(_under_lowrank(q).matmul(factor))
    return _divergence(p, q, trace, _batch_lowrank_mahalanobis(*_lowrank(q), q.loc - p.loc, q._capacitance_tril))


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _lowrank_full(p, q):
    _check_events(p, q, "(Low Rank) Multivariate Normals")
    own, diag = _lowrank(p)
    factor = q._unbroadcasted_scale_tril
    trace = _squares(_solved(factor, own)) + _squares(_solved(factor, mica.diag_embed(diag.sqrt())))
    return _divergence(p, q, trace, _batch_mahalanobis(factor, q.loc - p.loc))


@register_kl(MultivariateNormal, MultivariateNormal)
def _full_full(p, q):
    _check_events(p, q, "Multivariate Normals")
    factor = q._unbroadcasted_scale_tril
    trace = _squares(_solved(factor, p._unbroadcasted_scale_tril))
    return _divergence(p, q, trace, _batch_mahalanobis(factor, q.loc - p.loc))
