// Multivariate normal distributions, with a covariance of any kind and of low rank plus a diagonal.
#include <cmath>

#include "core/geometry.h"
#include "distributions/matrices.h"
#include "distributions/shared.h"
#include "mica/linalg.h"

namespace mica::distributions {

// ---- matrices ----------------------------------------------------------------------------------------------------

Tensor batch_mv(const Tensor& matrices, const Tensor& vectors) {
  return matmul(matrices, vectors.unsqueeze(-1)).squeeze(-1);
}

Tensor batch_mahalanobis(const Tensor& factors, const Tensor& x) {
  const int64_t n = x.size(-1);
  const DimVector batch(without_last(x.sizes())), own(without_last(factors.sizes(), 2));
  if (own.ref() == batch.ref())  // one vector for each factor
    return linalg_solve_triangular(factors, x.unsqueeze(-1), false).squeeze(-1).pow(2).sum({-1});
  MICA_CHECK(batch.size() >= own.size(), "x has fewer batch dimensions than its factors: ", batch.ref(), " and ",
             own.ref());
  const size_t outer = batch.size() - own.size();
  // x of shape (..., repeats, sizes of L, n), the repeats of every dimension before all of L's.
  DimVector split(first(batch, outer)), order;
  for (size_t i = 0; i < outer; ++i) order.push_back(static_cast<int64_t>(i));
  for (size_t i = 0; i < own.size(); ++i) {
    split.push_back(own[i] ? batch[outer + i] / own[i] : 0);
    split.push_back(own[i]);
    order.push_back(static_cast<int64_t>(outer + 2 * i));
  }
  for (size_t i = 0; i < own.size(); ++i) order.push_back(static_cast<int64_t>(outer + 2 * i + 1));
  const auto last_dim = static_cast<int64_t>(order.size());
  const Tensor wide = x.reshape(joined(split, {n})).permute(joined(order, {last_dim}));
  const Tensor flat = factors.reshape({-1, n, n});
  const Tensor columns = wide.reshape({-1, flat.size(0), n}).permute({1, 2, 0});
  const Tensor squared = linalg_solve_triangular(flat, columns, false).pow(2).sum({-2}).t();
  DimVector back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return squared.reshape(without_last(wide.sizes())).permute(back).reshape(batch);
}

Tensor log_diagonal(const Tensor& factor) { return factor.diagonal(0, -2, -1).log().sum({-1}); }

Tensor lowrank_log_det(const Tensor& diag, const Tensor& capacitance_tril) {
  return 2 * log_diagonal(capacitance_tril) + diag.log().sum({-1});
}

Tensor lowrank_mahalanobis(const Tensor& factor, const Tensor& diag, const Tensor& x, const Tensor& capacitance_tril) {
  const Tensor projected = batch_mv(factor.mT() / diag.unsqueeze(-2), x);
  return (x.pow(2) / diag).sum({-1}) - batch_mahalanobis(capacitance_tril, projected);
}

// With rows and columns in reverse order, the factor of P is the inverse of the transpose of the wanted factor.
static Tensor precision_to_scale_tril(const Tensor& precision) {
  const Tensor turned = linalg_cholesky(flip(precision, {-2, -1}));
  const Tensor inverse = flip(turned, {-2, -1}).mT();
  return linalg_solve_triangular(inverse, eye(precision.size(-1), precision.options()), false);
}

GivenCovariance given_covariance(const CovarianceOptions& options) {
  const int count =
      options.covariance_matrix.defined() + options.precision_matrix.defined() + options.scale_tril.defined();
  MICA_CHECK_KIND(count == 1, Value,
                  "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.");
  if (options.scale_tril.defined()) return {GivenCovariance::Factor, options.scale_tril};
  if (options.precision_matrix.defined()) return {GivenCovariance::Precision, options.precision_matrix};
  return {GivenCovariance::Covariance, options.covariance_matrix};
}

Tensor scale_tril_of(const GivenCovariance& given) {
  if (given.kind == GivenCovariance::Factor) return given.matrix;
  return given.kind == GivenCovariance::Covariance ? linalg_cholesky(given.matrix)
                                                   : precision_to_scale_tril(given.matrix);
}

Constraint covariance_constraint(int kind) {
  return kind == GivenCovariance::Factor ? constraints::lower_cholesky() : constraints::positive_definite();
}

// ---- of any covariance -------------------------------------------------------------------------------------------

MultivariateNormal::MultivariateNormal(const Tensor& loc, const Tensor& covariance_matrix, const Options& options)
    : MultivariateNormal(loc, {.covariance_matrix = covariance_matrix, .validate_args = options.validate_args}) {}

MultivariateNormal::MultivariateNormal(const Tensor& loc, const CovarianceOptions& covariance) {
  MICA_CHECK_KIND(loc.defined() && loc.dim() >= 1, Value, "loc must be at least one-dimensional.");
  const GivenCovariance given = given_covariance(covariance);
  MICA_CHECK_KIND(given.matrix.dim() >= 2, Value, kCovarianceNames[given.kind],
                  given.kind == GivenCovariance::Factor ? " matrix" : "",
                  " must be at least two-dimensional, with optional leading batch dimensions");
  const DimVector batch = broadcast_sizes(without_last(given.matrix.sizes(), 2), without_last(loc.sizes()));
  add("loc", constraints::real_vector(), loc.expand(joined(batch, {-1})));
  for (int kind = 0; kind < 3; ++kind) {
    if (kind == given.kind)
      add(kCovarianceNames[kind], covariance_constraint(kind), given.matrix.expand(joined(batch, {-1, -1})));
    else
      add_computed(kCovarianceNames[kind], covariance_constraint(kind));
  }
  finish(batch, last(loc.sizes(), 1), {covariance.validate_args});
  factor_ = scale_tril_of(given);
}

Tensor MultivariateNormal::widened(const Tensor& matrix) const {
  return matrix.expand(joined(joined(batch_shape(), event_shape()), event_shape()));
}
Tensor MultivariateNormal::covariance_matrix() const {
  return computed(1, [this] { return widened(matmul(factor_, factor_.mT())); });
}
Tensor MultivariateNormal::precision_matrix() const {
  return computed(2, [this] { return widened(cholesky_inverse(factor_)); });
}
Tensor MultivariateNormal::scale_tril() const {
  return computed(3, [this] { return widened(factor_); });
}
Tensor MultivariateNormal::variance() const {
  return factor_.pow(2).sum({-1}).expand(joined(batch_shape(), event_shape()));
}
Tensor MultivariateNormal::rsample(IntArrayRef sample_shape) const {
  return loc() + batch_mv(factor_, standard_normal(extended_shape(sample_shape), loc()));
}
Tensor MultivariateNormal::log_prob(const Tensor& value) const {
  check(value);
  const Tensor squared = batch_mahalanobis(factor_, value - loc());
  const double constant = static_cast<double>(event_shape()[0]) * std::log(2 * kPi);
  return -0.5 * (constant + squared) - log_diagonal(factor_);
}
Tensor MultivariateNormal::entropy() const {
  const double half = 0.5 * static_cast<double>(event_shape()[0]) * (1.0 + std::log(2 * kPi));
  return (half + log_diagonal(factor_)).expand(batch_shape());
}

// ---- of low rank plus a diagonal ---------------------------------------------------------------------------------

static Tensor plus_identity(const Tensor& matrix) { return matrix + eye(matrix.size(-1), matrix.options()); }

LowRankMultivariateNormal::LowRankMultivariateNormal(const Tensor& loc, const Tensor& cov_factor,
                                                     const Tensor& cov_diag, const Options& options)
    : factor_(cov_factor), diag_(cov_diag) {
  MICA_CHECK_KIND(loc.defined() && cov_factor.defined() && cov_diag.defined(), Value,
                  "loc, cov_factor and cov_diag must be defined tensors");
  MICA_CHECK_KIND(loc.dim() >= 1, Value, "loc must be at least one-dimensional.");
  const DimVector event(last(loc.sizes(), 1));
  MICA_CHECK_KIND(cov_factor.dim() >= 2, Value,
                  "cov_factor must be at least two-dimensional, with optional leading batch dimensions");
  MICA_CHECK_KIND(cov_factor.size(-2) == event[0], Value, "cov_factor must be a batch of matrices with shape ",
                  event[0], " x m");
  MICA_CHECK_KIND(cov_diag.dim() >= 1 && cov_diag.size(-1) == event[0], Value,
                  "cov_diag must be a batch of vectors with shape ", size_text(event));
  std::vector<Tensor> wide;
  try {
    wide = broadcast_tensors({loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1)});
  } catch (const Error&) {
    fail(ErrorKind::Value, mica::cat("Incompatible batch shapes: loc ", size_text(loc.sizes()), ", cov_factor ",
                                     size_text(cov_factor.sizes()), ", cov_diag ", size_text(cov_diag.sizes())));
  }
  capacitance_ = linalg_cholesky(plus_identity(matmul(cov_factor.mT() / cov_diag.unsqueeze(-2), cov_factor)));
  add("loc", constraints::real_vector(), wide[0].select(-1, 0));
  add("cov_factor", constraints::independent(constraints::real(), 2), wide[1]);
  add("cov_diag", constraints::independent(constraints::positive(), 1), wide[2].select(-1, 0));
  finish(without_last(wide[1].sizes(), 2), event, options);
}
Tensor LowRankMultivariateNormal::widened(const Tensor& matrix) const {
  return matrix.expand(joined(joined(batch_shape(), event_shape()), event_shape()));
}
Tensor LowRankMultivariateNormal::variance() const {
  return (factor_.pow(2).sum({-1}) + diag_).expand(joined(batch_shape(), event_shape()));
}
// D^(1/2) times the factor of I + D^(-1/2) W W' D^(-1/2), which is well conditioned.
Tensor LowRankMultivariateNormal::scale_tril() const {
  const Tensor root = diag_.sqrt().unsqueeze(-1), scaled = factor_ / root;
  return widened(root * linalg_cholesky(plus_identity(matmul(scaled, scaled.mT()))));
}
Tensor LowRankMultivariateNormal::covariance_matrix() const {
  return widened(matmul(factor_, factor_.mT()) + diag_embed(diag_));
}
Tensor LowRankMultivariateNormal::precision_matrix() const {
  const Tensor solved = linalg_solve_triangular(capacitance_, factor_.mT() / diag_.unsqueeze(-2), false);
  return widened(diag_embed(diag_.reciprocal()) - matmul(solved.mT(), solved));
}
Tensor LowRankMultivariateNormal::rsample(IntArrayRef sample_shape) const {
  const DimVector shape = extended_shape(sample_shape);
  const Tensor low = standard_normal(joined(without_last(shape), last(cov_factor().sizes(), 1)), loc());
  const Tensor own = standard_normal(shape, loc());
  return loc() + batch_mv(factor_, low) + diag_.sqrt() * own;
}
Tensor LowRankMultivariateNormal::log_prob(const Tensor& value) const {
  check(value);
  const Tensor squared = lowrank_mahalanobis(factor_, diag_, value - loc(), capacitance_);
  const Tensor log_det = lowrank_log_det(diag_, capacitance_);
  return -0.5 * (static_cast<double>(event_shape()[0]) * std::log(2 * kPi) + log_det + squared);
}
Tensor LowRankMultivariateNormal::entropy() const {
  const double constant = static_cast<double>(event_shape()[0]) * (1.0 + std::log(2 * kPi));
  return (0.5 * (constant + lowrank_log_det(diag_, capacitance_))).expand(batch_shape());
}

}  // namespace mica::distributions
