// Bernoulli distributions, continuous ones too, and distributions of counts: binomial, geometric, Poisson.
#include <cmath>
#include <limits>

#include "distributions/shared.h"
#include "mica/core/grad_mode.h"
#include "mica/distributions/continuous.h"
#include "mica/distributions/discrete.h"
#include "mica/generated/layers/loss.h"

namespace mica::distributions {

// The negative log probability of each outcome.
static Tensor cross_entropy(const Tensor& logits, const Tensor& value) {
  return binary_cross_entropy_with_logits(logits, value, {}, {}, 0);
}
static const Argument& given_of(const OddsOptions& odds) {
  check_one_of_two(odds);
  return odds.probs ? *odds.probs : *odds.logits;
}
static OddsOptions of_probs_alone(const Argument& probs, const Options& options) {
  return {probs, std::nullopt, options.validate_args};
}

// ---- Bernoulli ---------------------------------------------------------------------------------------------------

Bernoulli::Bernoulli(const Argument& probs, const Options& options) : Bernoulli(of_probs_alone(probs, options)) {}
Bernoulli::Bernoulli(const OddsOptions& odds) {
  const Tensor value = broadcast_all({given_of(odds)})[0];
  add_odds(odds, value, constraints::unit_interval());
  finish(value.sizes(), {}, {odds.validate_args});
}
Tensor Bernoulli::mode() const {
  const Tensor p = probs();
  return (p >= 0.5).to(p.options()).masked_fill(p == 0.5, std::numeric_limits<double>::quiet_NaN());
}
Tensor Bernoulli::variance() const { return probs() * (1 - probs()); }
Tensor Bernoulli::sample(IntArrayRef sample_shape) const {
  NoGradGuard no_grad;
  return bernoulli(probs().expand(extended_shape(sample_shape)));
}
Tensor Bernoulli::log_prob(const Tensor& value) const {
  check(value);
  const auto both = broadcast_all({logits(), value});
  return -cross_entropy(both[0], both[1]);
}
Tensor Bernoulli::entropy() const { return cross_entropy(logits(), probs()); }
Tensor Bernoulli::enumerate_support(bool expand) const {
  return enumerated(arange(2, given().options()), batch_shape(), expand);
}
std::vector<Tensor> Bernoulli::natural_params() const { return {logit(probs())}; }
Tensor Bernoulli::log_normalizer(const std::vector<Tensor>& natural) const { return log1p(exp(natural[0])); }

// ---- continuous Bernoulli: Loaiza-Ganem and Cunningham, 2019 -----------------------------------------------------

ContinuousBernoulli::ContinuousBernoulli(const Argument& probs, const Options& options)
    : ContinuousBernoulli(of_probs_alone(probs, options)) {}
ContinuousBernoulli::ContinuousBernoulli(const OddsOptions& odds) : ContinuousBernoulli(odds, Limits{}) {}
ContinuousBernoulli::ContinuousBernoulli(const OddsOptions& odds, Limits limits) : limits_(limits) {
  Tensor value = broadcast_all({given_of(odds)})[0];
  if (odds.probs) {
    // Checked here, because the clamped probabilities would always pass.
    MICA_CHECK_KIND(!odds.validate_args || all_true(constraints::unit_interval().check(value)), Value,
                    "The parameter probs has invalid values");
    value = clamp_probs(value);
  }
  add_odds(odds, value, constraints::unit_interval());
  finish(value.sizes(), {}, {odds.validate_args});
}
Tensor ContinuousBernoulli::outside_unstable_region() const {
  return (probs() <= limits_.low) | (probs() > limits_.high);
}
Tensor ContinuousBernoulli::cut_probs() const {
  return where(outside_unstable_region(), probs(), limits_.low * ones_like(probs()));
}
Tensor ContinuousBernoulli::log_norm() const {
  const Tensor cut = cut_probs();
  const Tensor below = where(cut <= 0.5, cut, zeros_like(cut)), above = where(cut >= 0.5, cut, ones_like(cut));
  const Tensor norm = log(abs(log1p(-cut) - log(cut))) - where(cut <= 0.5, log1p(-2.0 * below), log(2.0 * above - 1.0));
  const Tensor x = (probs() - 0.5).pow(2);
  return where(outside_unstable_region(), norm, std::log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x);
}
Tensor ContinuousBernoulli::mean() const {
  const Tensor cut = cut_probs(), x = probs() - 0.5;
  const Tensor exact = cut / (2.0 * cut - 1.0) + 1.0 / (log1p(-cut) - log(cut));
  return where(outside_unstable_region(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x);
}
Tensor ContinuousBernoulli::variance() const {
  const Tensor cut = cut_probs(), x = (probs() - 0.5).pow(2);
  const Tensor exact = cut * (cut - 1.0) / (1.0 - 2.0 * cut).pow(2) + 1.0 / (log1p(-cut) - log(cut)).pow(2);
  return where(outside_unstable_region(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x);
}
Tensor ContinuousBernoulli::rsample(IntArrayRef sample_shape) const {
  return icdf(rand(extended_shape(sample_shape), probs().options()));
}
Tensor ContinuousBernoulli::log_prob(const Tensor& value) const {
  check(value);
  const auto both = broadcast_all({logits(), value});
  return -cross_entropy(both[0], both[1]) + log_norm();
}
Tensor ContinuousBernoulli::cdf(const Tensor& value) const {
  check(value);
  const Tensor cut = cut_probs();
  const Tensor exact = pow(cut, value) * pow(1.0 - cut, 1.0 - value) + cut - 1.0;
  const Tensor inside = where(outside_unstable_region(), exact / (2.0 * cut - 1.0), value);
  return where(value <= 0.0, zeros_like(value), where(value >= 1.0, ones_like(value), inside));
}
Tensor ContinuousBernoulli::icdf(const Tensor& value) const {
  const Tensor cut = cut_probs();
  const Tensor exact = log1p(-cut + value * (2.0 * cut - 1.0)) - log1p(-cut);
  return where(outside_unstable_region(), exact / (log(cut) - log1p(-cut)), value);
}
Tensor ContinuousBernoulli::entropy() const {
  const Tensor zero = log1p(-probs()), one = log(probs());
  return mean() * (zero - one) - log_norm() - zero;
}
std::vector<Tensor> ContinuousBernoulli::natural_params() const { return {logits()}; }
Tensor ContinuousBernoulli::log_normalizer(const std::vector<Tensor>& natural) const {
  const Tensor& x = natural[0];
  const double low = limits_.low - 0.5, high = limits_.high - 0.5;
  const Tensor outside = (x <= low) | (x > high);
  const Tensor cut = where(outside, x, low * ones_like(x));
  const Tensor exact = log(abs(expm1(cut))) - log(abs(cut));
  return where(outside, exact, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0);
}

// ---- geometric ---------------------------------------------------------------------------------------------------

Geometric::Geometric(const Argument& probs, const Options& options) : Geometric(of_probs_alone(probs, options)) {}
Geometric::Geometric(const OddsOptions& odds) {
  const Tensor value = broadcast_all({given_of(odds)})[0];
  add_odds(odds, value, constraints::unit_interval());
  finish(value.sizes(), {}, {odds.validate_args});
  if (!validates() || !odds.probs) return;
  const Tensor valid = value > 0;
  MICA_CHECK_KIND(all_true(valid), Value, "Expected parameter probs (Tensor of shape ", tuple_text(value.sizes()),
                  ") of distribution ", str(), " to be positive but found invalid values:\n",
                  value.detach().masked_select(~valid).str());
}
Tensor Geometric::mean() const { return 1.0 / probs() - 1.0; }
Tensor Geometric::mode() const { return zeros_like(probs()); }
Tensor Geometric::variance() const { return (1.0 / probs() - 1.0) / probs(); }
Tensor Geometric::sample(IntArrayRef sample_shape) const {
  NoGradGuard no_grad;
  const Tensor u = probs().new_empty(extended_shape(sample_shape));
  u.uniform_(limits_of(u).tiny, 1);
  return (u.log() / (-probs()).log1p()).floor();
}
Tensor Geometric::log_prob(const Tensor& given) const {
  check(given);
  const auto both = broadcast_all({given, probs()});
  const Tensor& value = both[0];
  const Tensor p = both[1].masked_fill((both[1] == 1) & (value == 0), 0);
  return value * (-p).log1p() + probs().log();
}
Tensor Geometric::entropy() const { return cross_entropy(logits(), probs()) / probs(); }

// ---- binomial ----------------------------------------------------------------------------------------------------

Binomial::Binomial(const Argument& total_count, const Argument& probs, const Options& options)
    : Binomial(total_count, of_probs_alone(probs, options)) {}
Binomial::Binomial(const Argument& total_count, const OddsOptions& odds) {
  const auto both = broadcast_all({total_count, given_of(odds)});
  add("total_count", constraints::nonnegative_integer(), both[0].type_as(both[1]));
  add_odds(odds, both[1], constraints::unit_interval(), 1);
  finish(both[1].sizes(), {}, {odds.validate_args});
}
Tensor Binomial::mean() const { return total_count() * probs(); }
Tensor Binomial::mode() const { return ((total_count() + 1) * probs()).floor().clamp(Tensor(), total_count()); }
Tensor Binomial::variance() const { return total_count() * probs() * (1 - probs()); }
Tensor Binomial::sample(IntArrayRef sample_shape) const {
  const DimVector shape = extended_shape(sample_shape);
  NoGradGuard no_grad;
  return binomial(total_count().expand(shape), probs().expand(shape));
}
// max(x, 0) with the derivative one half at zero.
static Tensor clamp_by_zero(const Tensor& x) { return (x.clamp(Scalar(0)) + x - x.clamp(std::nullopt, Scalar(0))) / 2; }
Tensor Binomial::log_prob(const Tensor& value) const {
  check(value);
  const Tensor& n = total_count();
  const Tensor l = logits();
  // k log p + (n - k) log(1 - p) is k logit - n max(logit, 0) - n log(1 + e^-|logit|), whatever the logit's sign.
  const Tensor normalize = n * clamp_by_zero(l) + n * log1p(exp(-abs(l))) - lgamma(n + 1);
  return value * l - lgamma(value + 1) - lgamma(n - value + 1) - normalize;
}
int64_t Binomial::common_count(const char* method) const {
  const auto count = static_cast<int64_t>(total_count().max().item().to_double());
  MICA_CHECK_KIND(total_count().min().item().to_double() == static_cast<double>(count), NotImplemented,
                  "Inhomogeneous total count not supported by `", method, "`.");
  return count;
}
Tensor Binomial::entropy() const {
  common_count("entropy");
  const Tensor score = log_prob(enumerate_support(false));
  return -(exp(score) * score).sum({0});
}
Tensor Binomial::enumerate_support(bool expand) const {
  const int64_t count = common_count("enumerate_support");
  return enumerated(arange(1 + count, given().options()), batch_shape(), expand);
}

NegativeBinomial::NegativeBinomial(const Argument& total_count, const Argument& probs, const Options& options)
    : NegativeBinomial(total_count, of_probs_alone(probs, options)) {}
NegativeBinomial::NegativeBinomial(const Argument& total_count, const OddsOptions& odds) {
  const auto both = broadcast_all({total_count, given_of(odds)});
  add("total_count", constraints::greater_than_eq(0), both[0].type_as(both[1]));
  add_odds(odds, both[1], constraints::half_open_interval(0.0, 1.0), 1);
  finish(both[1].sizes(), {}, {odds.validate_args});
}
Tensor NegativeBinomial::mean() const { return total_count() * exp(logits()); }
Tensor NegativeBinomial::mode() const { return ((total_count() - 1) * logits().exp()).floor().clamp(Scalar(0.0)); }
Tensor NegativeBinomial::variance() const { return mean() / sigmoid(-logits()); }
Tensor NegativeBinomial::sample(IntArrayRef sample_shape) const {
  NoGradGuard no_grad;
  // Made without checks, because the count may be zero.
  return poisson(Gamma(total_count(), exp(-logits()), {.validate_args = false}).sample(sample_shape));
}
Tensor NegativeBinomial::log_prob(const Tensor& value) const {
  check(value);
  const Tensor& count = total_count();
  const Tensor unnormalized = count * log_sigmoid(-logits()) + value * log_sigmoid(logits());
  const Tensor normalization = -lgamma(count + value) + lgamma(1.0 + value) + lgamma(count);
  // With a total count of zero there is no failure to wait for: zero successes are certain, though lgamma(0) is
  // infinite.
  return unnormalized - normalization.masked_fill(count + value == 0.0, 0.0);
}

// ---- Poisson -----------------------------------------------------------------------------------------------------

Poisson::Poisson(const Argument& rate, const Options& options) {
  const Tensor value = broadcast_all({rate})[0];
  add("rate", constraints::nonnegative(), value);
  finish(value.sizes(), {}, options);
}
Tensor Poisson::mode() const { return rate().floor(); }
Tensor Poisson::sample(IntArrayRef sample_shape) const {
  NoGradGuard no_grad;
  return poisson(rate().expand(extended_shape(sample_shape)));
}
Tensor Poisson::log_prob(const Tensor& given) const {
  check(given);
  const auto both = broadcast_all({rate(), given});
  return both[1].xlogy(both[0]) - both[0] - (both[1] + 1).lgamma();
}
std::vector<Tensor> Poisson::natural_params() const { return {log(rate())}; }
Tensor Poisson::log_normalizer(const std::vector<Tensor>& natural) const { return exp(natural[0]); }

}  // namespace mica::distributions
