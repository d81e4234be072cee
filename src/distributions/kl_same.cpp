// Divergences within a family.
#include <cmath>

#include "core/geometry.h"
#include "distributions/kl_entries.h"
#include "distributions/matrices.h"
#include "distributions/shared.h"
#include "mica/autograd.h"
#include "mica/distributions.h"
#include "mica/linalg.h"

namespace mica::distributions {

namespace {

Tensor of_bernoulli(const Bernoulli& p, const Bernoulli& q) {
  const Tensor mine = p.probs(), theirs = q.probs();
  Tensor one = mine * (softplus(-q.logits()) - softplus(-p.logits()));
  one = one.masked_fill(theirs == 0, kInf).masked_fill(mine == 0, 0);
  const Tensor zero = (1 - mine) * (softplus(q.logits()) - softplus(p.logits()));
  return one + zero.masked_fill(theirs == 1, kInf).masked_fill(mine == 1, 0);
}
Tensor of_beta(const Beta& p, const Beta& q) {
  const Tensor total_p = p.concentration1() + p.concentration0(), total_q = q.concentration1() + q.concentration0();
  const Tensor log_q = q.concentration1().lgamma() + q.concentration0().lgamma() + total_p.lgamma();
  const Tensor log_p = p.concentration1().lgamma() + p.concentration0().lgamma() + total_q.lgamma();
  const Tensor slope1 = (p.concentration1() - q.concentration1()) * digamma(p.concentration1());
  const Tensor slope0 = (p.concentration0() - q.concentration0()) * digamma(p.concentration0());
  return log_q - log_p + slope1 + slope0 + (total_q - total_p) * digamma(total_p);
}
Tensor of_binomial(const Binomial& p, const Binomial& q) {
  MICA_CHECK_KIND(!(p.total_count() < q.total_count()).any().item<bool>(), NotImplemented,
                  "KL between Binomials where q.total_count > p.total_count is not implemented");
  const Tensor mine = p.probs();
  const Tensor kl = p.total_count() * (mine * (p.logits() - q.logits()) + (-mine).log1p() - (-q.probs()).log1p());
  return kl.masked_fill(p.total_count() > q.total_count(), kInf);
}
Tensor of_categorical(const Categorical& p, const Categorical& q) {
  const Tensor terms = p.probs() * (p.logits() - q.logits());
  return terms.masked_fill(q.probs() == 0, kInf).masked_fill(p.probs() == 0, 0).sum({-1});
}
Tensor of_one_hot(const OneHotCategorical& p, const OneHotCategorical& q) {
  return of_categorical(p.categorical(), q.categorical());
}
Tensor of_continuous_bernoulli(const ContinuousBernoulli& p, const ContinuousBernoulli& q) {
  const Tensor own = p.log_norm() + log1p(-p.probs());
  return p.mean() * (p.logits() - q.logits()) + own - q.log_norm() - log1p(-q.probs());
}
Tensor of_dirichlet(const Dirichlet& p, const Dirichlet& q) {
  const Tensor &mine = p.concentration(), &theirs = q.concentration();
  const Tensor total_p = mine.sum({-1}), total_q = theirs.sum({-1});
  const Tensor parts = (mine.lgamma() - theirs.lgamma()).sum({-1});
  const Tensor slopes = mine.digamma() - total_p.digamma().unsqueeze(-1);
  return total_p.lgamma() - total_q.lgamma() - parts + ((mine - theirs) * slopes).sum({-1});
}
Tensor of_exponential(const Exponential& p, const Exponential& q) {
  const Tensor ratio = q.rate() / p.rate();
  return -ratio.log() + ratio - 1;
}
// By the Bregman divergence of the log normalizer.
Tensor of_exponential_family(const ExponentialFamily& p, const ExponentialFamily& q) {
  MICA_CHECK_KIND(typeid(p) == typeid(q), NotImplemented,
                  "The cross KL-divergence between different exponential families cannot be computed using Bregman "
                  "divergences");
  TensorVec mine, slopes;
  for (const Tensor& v : p.natural_params()) mine.push_back(v.detach().requires_grad_());
  const TensorVec theirs = q.natural_params();
  Tensor normalizer;
  {
    EnableGradGuard recording;
    normalizer = p.log_normalizer(mine);
    slopes = autograd::grad({normalizer.sum()}, mine, {}, std::nullopt, true);
  }
  Tensor result = q.log_normalizer(theirs) - normalizer;
  for (size_t i = 0; i < mine.size(); ++i)
    result = result - sum_rightmost((theirs[i] - mine[i]) * slopes[i], static_cast<int64_t>(q.event_shape().size()));
  return result;
}
Tensor of_gamma(const Gamma& p, const Gamma& q) {
  const Tensor rates = q.concentration() * (p.rate() / q.rate()).log();
  const Tensor shapes = lgamma(q.concentration()) - lgamma(p.concentration());
  const Tensor slope = (p.concentration() - q.concentration()) * digamma(p.concentration());
  return rates + shapes + slope + (q.rate() - p.rate()) * (p.concentration() / p.rate());
}
Tensor of_gumbel(const Gumbel& p, const Gumbel& q) {
  const Tensor scales = p.scale() / q.scale(), mine = p.loc() / q.scale(), theirs = q.loc() / q.scale();
  const Tensor tail = exp(theirs + (1 + scales).lgamma() - mine);
  return -scales.log() - theirs + mine + scales * kEuler + tail - (1 + kEuler);
}
Tensor of_geometric(const Geometric& p, const Geometric& q) {
  return -p.entropy() - log1p(-q.probs()) / p.probs() - q.logits();
}
Tensor of_normal(const Normal& p, const Normal& q) {
  const Tensor variances = (p.scale() / q.scale()).pow(2);
  return 0.5 * (variances + ((p.loc() - q.loc()) / q.scale()).pow(2) - 1 - variances.log());
}
Tensor of_half_normal(const HalfNormal& p, const HalfNormal& q) { return kl_divergence(p.base_dist(), q.base_dist()); }
Tensor of_laplace(const Laplace& p, const Laplace& q) {
  const Tensor scales = p.scale() / q.scale(), apart = (p.loc() - q.loc()).abs();
  return -scales.log() + apart / q.scale() + scales * exp(-apart / p.scale()) - 1;
}
Tensor of_cauchy(const Cauchy& p, const Cauchy& q) {
  return ((p.scale() + q.scale()).pow(2) + (p.loc() - q.loc()).pow(2)).log() - (4 * p.scale() * q.scale()).log();
}
Tensor of_pareto(const Pareto& p, const Pareto& q) {
  const Tensor powers = q.alpha() / p.alpha();
  const Tensor result = q.alpha() * (p.scale() / q.scale()).log() - powers.log() + powers - 1;
  return result.masked_fill(p.scale() < q.scale(), kInf);
}
Tensor of_poisson(const Poisson& p, const Poisson& q) {
  return p.rate() * (p.rate().log() - q.rate().log()) - (p.rate() - q.rate());
}
Tensor of_uniform(const Uniform& p, const Uniform& q) {
  const Tensor result = ((q.high() - q.low()) / (p.high() - p.low())).log();
  return result.masked_fill((q.low() > p.low()) | (q.high() < p.high()), kInf);
}
Tensor of_transformed(const TransformedDistribution& p, const TransformedDistribution& q) {
  MICA_CHECK_KIND(p.transforms() == q.transforms() && p.event_shape() == q.event_shape(), NotImplemented,
                  "KL between transformed distributions is implemented for equal transforms and event shapes only");
  return kl_divergence(p.base_dist(), q.base_dist());
}
Tensor of_independent(const Independent& p, const Independent& q) {
  MICA_CHECK_KIND(p.reinterpreted_batch_ndims() == q.reinterpreted_batch_ndims(), NotImplemented,
                  "KL between Independents is implemented for equal reinterpreted_batch_ndims only");
  return sum_rightmost(kl_divergence(p.base_dist(), q.base_dist()), p.reinterpreted_batch_ndims());
}

// ---- multivariate normal -----------------------------------------------------------------------------------------

using Full = MultivariateNormal;
using LowRank = LowRankMultivariateNormal;

void check_events(const Distribution& p, const Distribution& q, const char* kind) {
  // torch's message has the indent of its source line in it.
  MICA_CHECK_KIND(p.event_shape() == q.event_shape(), Value, "KL-divergence between two ", kind, " with",
                  std::string(26, ' '), "different event shapes cannot be computed");
}
Tensor squares(const Tensor& matrix) {  // the trace of X X'
  return matrix.reshape(joined(without_last(matrix.sizes(), 2), {-1})).pow(2).sum({-1});
}
Tensor solved(const Tensor& factor, const Tensor& matrix) {
  const DimVector batch = broadcast_sizes(without_last(factor.sizes(), 2), without_last(matrix.sizes(), 2));
  return linalg_solve_triangular(factor.expand(joined(batch, last(factor.sizes(), 2))),
                                 matrix.expand(joined(batch, last(matrix.sizes(), 2))), false);
}
Tensor log_det(const Full& d) { return 2 * log_diagonal(d.unbroadcasted_scale_tril()); }
Tensor log_det(const LowRank& d) { return lowrank_log_det(d.unbroadcasted_cov_diag(), d.capacitance_tril()); }
Tensor mahalanobis(const Full& q, const Tensor& x) { return batch_mahalanobis(q.unbroadcasted_scale_tril(), x); }
Tensor mahalanobis(const LowRank& q, const Tensor& x) {
  return lowrank_mahalanobis(q.unbroadcasted_cov_factor(), q.unbroadcasted_cov_diag(), x, q.capacitance_tril());
}
// W' D^-1, solved by the capacitance. The inverse covariance of q is D^-1 minus the square of this.
Tensor under(const LowRank& q) {
  const Tensor scaled = q.unbroadcasted_cov_factor().mT() / q.unbroadcasted_cov_diag().unsqueeze(-2);
  return linalg_solve_triangular(q.capacitance_tril(), scaled, false);
}
template <class P, class Q>
Tensor divergence(const P& p, const Q& q, const Tensor& trace) {
  return 0.5 * (log_det(q) - log_det(p) + trace + mahalanobis(q, q.loc() - p.loc()) - p.event_shape()[0]);
}
Tensor of_lowrank(const LowRank& p, const LowRank& q) {
  check_events(p, q, "Low Rank Multivariate Normals");
  const Tensor &own = p.unbroadcasted_cov_factor(), &diag = p.unbroadcasted_cov_diag();
  const Tensor& below = q.unbroadcasted_cov_diag();
  const Tensor inverse = under(q);
  const Tensor trace = (diag / below).sum({-1}) + squares(own * below.rsqrt().unsqueeze(-1)) -
                       squares(inverse * diag.sqrt().unsqueeze(-2)) - squares(inverse.matmul(own));
  return divergence(p, q, trace);
}
Tensor of_full_and_lowrank(const Full& p, const LowRank& q) {
  check_events(p, q, "(Low Rank) Multivariate Normals");
  const Tensor& factor = p.unbroadcasted_scale_tril();
  const Tensor spread = squares(factor * q.unbroadcasted_cov_diag().rsqrt().unsqueeze(-1));
  return divergence(p, q, spread - squares(under(q).matmul(factor)));
}
Tensor of_lowrank_and_full(const LowRank& p, const Full& q) {
  check_events(p, q, "(Low Rank) Multivariate Normals");
  const Tensor& factor = q.unbroadcasted_scale_tril();
  return divergence(p, q,
                    squares(solved(factor, p.unbroadcasted_cov_factor())) +
                        squares(solved(factor, diag_embed(p.unbroadcasted_cov_diag().sqrt()))));
}
Tensor of_full(const Full& p, const Full& q) {
  check_events(p, q, "Multivariate Normals");
  return divergence(p, q, squares(solved(q.unbroadcasted_scale_tril(), p.unbroadcasted_scale_tril())));
}

template <class P>
void within(const Register& add, Tensor (*divergence)(const P&, const P&)) {
  add_divergence<P, P>(add, divergence);
}

}  // namespace

void add_divergences_within_families(const Register& add) {
  within(add, of_bernoulli);
  within(add, of_beta);
  within(add, of_binomial);
  within(add, of_categorical);
  within(add, of_one_hot);
  within(add, of_continuous_bernoulli);
  within(add, of_dirichlet);
  within(add, of_exponential);
  within(add, of_exponential_family);
  within(add, of_gamma);
  within(add, of_gumbel);
  within(add, of_geometric);
  within(add, of_half_normal);
  within(add, of_laplace);
  within(add, of_normal);
  within(add, of_cauchy);
  within(add, of_pareto);
  within(add, of_poisson);
  within(add, of_uniform);
  within(add, of_transformed);
  within(add, of_independent);
  within(add, of_lowrank);
  within(add, of_full);
  add_divergence<Full, LowRank>(add, of_full_and_lowrank);
  add_divergence<LowRank, Full>(add, of_lowrank_and_full);
}

}  // namespace mica::distributions
