// Wishart distributions, and those of correlation matrices.
#include <cmath>
#include <limits>

#include "core/geometry.h"
#include "distributions/matrices.h"
#include "distributions/shared.h"
#include "mica/indexing.h"
#include "mica/linalg.h"
#include "mica/warning.h"

namespace mica::distributions {

using indexing::Ellipsis;
constexpr double kLog2 = 0.69314718055994530942;

// ---- Wishart -----------------------------------------------------------------------------------------------------

Wishart::Wishart(const Argument& df, const Tensor& covariance_matrix, const Options& options)
    : Wishart(df, {.covariance_matrix = covariance_matrix, .validate_args = options.validate_args}) {}

Wishart::Wishart(const Argument& given_df, const CovarianceOptions& covariance) {
  const GivenCovariance given = given_covariance(covariance);
  const Tensor& matrix = given.matrix;
  MICA_CHECK_KIND(matrix.dim() >= 2, Value,
                  "scale_tril must be at least two-dimensional, with optional leading batch dimensions");
  DimVector batch(without_last(matrix.sizes(), 2));
  Tensor df;
  if (given_df.is_number()) {
    df = full({}, given_df.number(), matrix.options());
  } else {
    batch = broadcast_sizes(batch, given_df.sizes());
    df = given_df.tensor().expand(batch);
  }
  const int64_t side = matrix.size(-1);
  MICA_CHECK_KIND(!(df <= side - 1).any().item<bool>(), Value, "Value of df=", given_df.str(),
                  " expected to be greater than ndim - 1 = ", side - 1, ".");
  if ((df < side).any().item<bool>())
    warn("Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.");
  for (int kind = 0; kind < 3; ++kind) {
    if (kind == given.kind)
      add(kCovarianceNames[kind], covariance_constraint(kind), matrix.expand(joined(batch, {-1, -1})));
    else
      add_computed(kCovarianceNames[kind], covariance_constraint(kind));
  }
  add("df", constraints::greater_than(side - 1), df);
  finish(batch, last(matrix.sizes(), 2), {covariance.validate_args});
  factor_ = scale_tril_of(given);
  const Tensor steps = arange(side, factor_.options());
  chi2_.emplace(df.unsqueeze(-1) - steps.expand(joined(batch, {-1})));
}

void Wishart::widen(IntArrayRef batch_shape) {
  Distribution::widen(batch_shape);
  factor_ = factor_.expand(joined(batch_shape, event_shape()));
  chi2_ = chi2_->expand(joined(batch_shape, last(event_shape(), 1)));
}
Tensor Wishart::widened(const Tensor& matrix) const { return matrix.expand(joined(batch_shape(), event_shape())); }
Tensor Wishart::covariance_matrix() const {
  return computed(0, [this] { return widened(matmul(factor_, factor_.mT())); });
}
Tensor Wishart::precision_matrix() const {
  return computed(1, [this] { return widened(cholesky_solve(eye(event_shape()[0], factor_.options()), factor_)); });
}
Tensor Wishart::scale_tril() const {
  return computed(2, [this] { return widened(factor_); });
}
Tensor Wishart::per_matrix(const Tensor& value) const { return value.view(joined(batch_shape(), {1, 1})); }
Tensor Wishart::mean() const { return per_matrix(df()) * covariance_matrix(); }
Tensor Wishart::mode() const {
  const Tensor factor = df() - event_shape()[0] - 1;
  return per_matrix(factor.masked_fill(factor <= 0, std::numeric_limits<double>::quiet_NaN())) * covariance_matrix();
}
Tensor Wishart::variance() const {
  const Tensor covariance = covariance_matrix(), diagonal = covariance.diagonal(0, -2, -1);
  return per_matrix(df()) * (covariance.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2));
}

// Bartlett's decomposition: the factor times a triangle of normal numbers with chi roots on the diagonal.
Tensor Wishart::bartlett_sample(IntArrayRef sample_shape) const {
  const int64_t p = event_shape()[0];
  const Tensor roots = chi2_->rsample(sample_shape).sqrt();
  Tensor noise = clamp_below(roots, limits_of(roots).eps).diag_embed();
  const Tensor places = tril_indices(p, p, -1, noise.device());
  const DimVector shape = joined(joined(sample_shape, batch_shape()), {p * (p - 1) / 2});
  noise.index_put_({Ellipsis, places.select(0, 0), places.select(0, 1)}, randn(shape, noise.options()));
  const Tensor factor = matmul(factor_, noise);
  return matmul(factor, factor.mT());
}
Tensor Wishart::any_of_batch(const Tensor& flags) const {
  if (batch_shape().empty()) return flags;
  DimVector dims;
  for (size_t i = 0; i < batch_shape().size(); ++i) dims.push_back(-static_cast<int64_t>(i + 1));
  return flags.amax(dims);
}
// As in torch, the first check marks samples that pass, not those that fail: the stream of random numbers has to be
// torch's.
Tensor Wishart::rsample(IntArrayRef sample_shape, int64_t max_try_correction) const {
  const Constraint region = support();
  Tensor drawn = bartlett_sample(sample_shape);
  Tensor again = any_of_batch(region.check(drawn));
  if (!again.any().item<bool>()) return drawn;
  warn("Singular sample detected.");
  for (int64_t i = 0; i < max_try_correction; ++i) {
    const Tensor fresh = bartlett_sample({again.sum().item<int64_t>()});
    drawn.index_put_({again}, fresh);
    again.index_put_({again.clone()}, any_of_batch(~region.check(fresh)));
    if (!again.any().item<bool>()) break;
  }
  return drawn;
}
Tensor Wishart::log_prob(const Tensor& value) const {
  check(value);
  const int64_t p = event_shape()[0];
  const Tensor& nu = df();
  const Tensor trace = cholesky_solve(value, factor_).diagonal(0, -2, -1).sum({-1});
  return -nu * (static_cast<double>(p) * kLog2 / 2 + log_diagonal(factor_)) - mvlgamma(nu / 2, p) +
         (nu - p - 1) / 2 * std::get<1>(linalg_slogdet(value)) - trace / 2;
}
// The derivative of mvlgamma.
static Tensor mvdigamma(const Tensor& x, int64_t p) {
  MICA_CHECK_KIND(all_true(x > static_cast<double>(p - 1) / 2), Value,
                  "Wrong domain for multivariate digamma function.");
  return digamma(x.unsqueeze(-1) - arange(p, x.options()) / 2).sum({-1});
}
Tensor Wishart::entropy() const {
  const int64_t p = event_shape()[0];
  const Tensor& nu = df();
  return (p + 1) * (static_cast<double>(p) * kLog2 / 2 + log_diagonal(factor_)) + mvlgamma(nu / 2, p) -
         (nu - p - 1) / 2 * mvdigamma(nu / 2, p) + nu * p / 2;
}
std::vector<Tensor> Wishart::natural_params() const {
  return {-precision_matrix() / 2, (df() - event_shape()[0] - 1) / 2};
}
Tensor Wishart::log_normalizer(const std::vector<Tensor>& natural) const {
  const int64_t p = event_shape()[0];
  const Tensor half = natural[1] + static_cast<double>(p + 1) / 2;
  const Tensor log_det = std::get<1>(linalg_slogdet(-2 * natural[0]));
  return half * (-log_det + kLog2 * static_cast<double>(p)) + mvlgamma(half, p);
}

// ---- correlation matrices ----------------------------------------------------------------------------------------

LKJCholesky::LKJCholesky(int64_t dim, const Argument& concentration, const Options& options) : dim_(dim) {
  MICA_CHECK_KIND(dim >= 2, Value, "Expected dim to be an integer greater than or equal to 2. Found dim=", dim, ".");
  const Tensor value = broadcast_all({concentration})[0];
  const Tensor marginal = value + 0.5 * static_cast<double>(dim - 2);
  const Tensor offset = mica::cat({zeros({1}, value.options()), arange(dim - 1, value.options())});
  add("concentration", constraints::positive(), value);
  finish(value.sizes(), {dim, dim}, options);
  beta_.emplace(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset);
}
void LKJCholesky::widen(IntArrayRef batch_shape) {
  Distribution::widen(batch_shape);
  beta_ = beta_->expand(joined(batch_shape, {dim_}));
}
Tensor LKJCholesky::sample(IntArrayRef sample_shape) const {
  const Tensor squared = beta_->sample(sample_shape).unsqueeze(-1);
  const Tensor noise = randn(extended_shape(sample_shape), squared.options()).tril(-1);
  const Tensor direction = noise / linalg_vector_norm(noise, 2, IntArrayRef{-1}, true);
  direction.select(-2, 0).fill_(0.0);  // nothing is left of the first diagonal element
  const Tensor factor = sqrt(squared) * direction;
  const Tensor rest = clamp_below(1 - factor.pow(2).sum({-1}), limits_of(factor).tiny);
  return factor + diag_embed(rest.sqrt());
}
Tensor LKJCholesky::log_prob(const Tensor& value) const {
  check(value);
  // The determinant's power and the Jacobian of the factorisation give each diagonal element one power.
  const Tensor diagonal = value.diagonal(0, -1, -2).narrow(-1, 1, dim_ - 1);
  const Tensor row = arange(2, dim_ + 1, concentration().options().dtype(DType::Int64));
  const Tensor power = 2 * (concentration() - 1).unsqueeze(-1) + dim_ - row;
  const int64_t below = dim_ - 1;
  const Tensor alpha = concentration() + 0.5 * static_cast<double>(below);
  const Tensor normalizer =
      0.5 * static_cast<double>(below) * std::log(kPi) + mvlgamma(alpha - 0.5, below) - lgamma(alpha) * below;
  return (power * diagonal.log()).sum({-1}) - normalizer;
}

}  // namespace mica::distributions
