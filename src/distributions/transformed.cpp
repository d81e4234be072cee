// Families that are transforms of others.
#include "mica/distributions/transformed.h"

#include <cmath>

#include "distributions/shared.h"

namespace mica::distributions {

// ---- Gumbel ------------------------------------------------------------------------------------------------------

Gumbel::Gumbel(const Argument& loc, const Argument& scale, const Options& options) {
  const auto both = broadcast_all({loc, scale});
  add("loc", constraints::real(), both[0]);
  add("scale", constraints::positive(), both[1]);
  const FloatLimits limits = limits_of(both[0]);
  const Uniform base(full_like(both[0], limits.tiny), full_like(both[0], 1 - limits.eps), options);
  finish_transformed(base,
                     {ExpTransform().inv(), AffineTransform(0, -ones_like(both[1])), ExpTransform().inv(),
                      AffineTransform(loc, -both[1])},
                     options);
}
Tensor Gumbel::log_prob(const Tensor& value) const {
  check(value);
  const Tensor y = (loc() - value) / scale();  // computed directly, because the way back through the steps loses digits
  return (y - y.exp()) - scale().log();
}
Tensor Gumbel::mean() const { return loc() + scale() * kEuler; }
Tensor Gumbel::stddev() const { return (kPi / std::sqrt(6.0)) * scale(); }
Tensor Gumbel::variance() const { return stddev().pow(2); }
Tensor Gumbel::entropy() const { return scale().log() + (1 + kEuler); }

// ---- halves ------------------------------------------------------------------------------------------------------

void Half::finish_half(const Distribution& whole, const Tensor& scale, const Options& options) {
  add("scale", constraints::positive(), scale, Seen::Quiet);
  finish_transformed(whole, {AbsTransform()}, options);
}
Tensor Half::mode() const { return zeros_like(scale()); }
Tensor Half::log_prob(const Tensor& given) const {
  check(given);
  const Tensor value = given.to(scale().options());
  return where(value >= 0, base_->log_prob(value) + std::log(2.0), -kInf);
}
Tensor Half::cdf(const Tensor& value) const {
  check(value);
  return 2 * base_->cdf(value) - 1;
}
Tensor Half::icdf(const Tensor& prob) const { return base_->icdf((prob + 1) / 2); }
Tensor Half::entropy() const { return base_->entropy() - std::log(2.0); }

HalfNormal::HalfNormal(const Argument& scale, const Options& options) {
  const Normal whole(0, scale, {.validate_args = false});
  finish_half(whole, whole.scale(), options);
}
Tensor HalfNormal::mean() const { return scale() * std::sqrt(2 / kPi); }
Tensor HalfNormal::variance() const { return scale().pow(2) * (1 - 2 / kPi); }

HalfCauchy::HalfCauchy(const Argument& scale, const Options& options) {
  const Cauchy whole(0, scale, {.validate_args = false});
  finish_half(whole, whole.scale(), options);
}
Tensor HalfCauchy::mean() const { return filled(kInf, scale()); }
Tensor HalfCauchy::variance() const { return base_->variance(); }

// ---- inverse gamma -----------------------------------------------------------------------------------------------

InverseGamma::InverseGamma(const Argument& concentration, const Argument& rate, const Options& options) {
  const Gamma base(concentration, rate, options);
  add("concentration", constraints::positive(), base.concentration(), Seen::Quiet);
  add("rate", constraints::positive(), base.rate(), Seen::Quiet);
  finish_transformed(base, {PowerTransform(-base.rate().new_ones({}))}, options);
}
Tensor InverseGamma::mean() const { return where(concentration() > 1, rate() / (concentration() - 1), kInf); }
Tensor InverseGamma::mode() const { return rate() / (concentration() + 1); }
Tensor InverseGamma::variance() const {
  const Tensor finite = rate().square() / ((concentration() - 1).square() * (concentration() - 2));
  return where(concentration() > 2, finite, kInf);
}
Tensor InverseGamma::entropy() const {
  return concentration() + rate().log() + concentration().lgamma() - (1 + concentration()) * concentration().digamma();
}

// ---- Kumaraswamy -------------------------------------------------------------------------------------------------

Kumaraswamy::Kumaraswamy(const Argument& concentration1, const Argument& concentration0, const Options& options) {
  const auto both = broadcast_all({concentration1, concentration0});
  add("concentration1", constraints::positive(), both[0]);
  add("concentration0", constraints::positive(), both[1]);
  const Uniform base(full_like(both[1], 0), full_like(both[1], 1), options);
  finish_transformed(
      base, {PowerTransform(both[1].reciprocal()), AffineTransform(1.0, -1.0), PowerTransform(both[0].reciprocal())},
      options);
}
Tensor Kumaraswamy::moment(int64_t n) const {
  const Tensor a = 1 + n / concentration1(), &b = concentration0();
  return b * exp(lgamma(a) + lgamma(b) - lgamma(a + b));
}
Tensor Kumaraswamy::mean() const { return moment(1); }
Tensor Kumaraswamy::mode() const {
  const Tensor &a = concentration1(), &b = concentration0();
  const Tensor log_mode = b.reciprocal() * (-b).log1p() - (-b * a).log1p();
  return log_mode.masked_fill((b < 1) | (a < 1), kNan).exp();
}
Tensor Kumaraswamy::variance() const { return moment(2) - mean().pow(2); }
Tensor Kumaraswamy::entropy() const {
  const Tensor &a = concentration1(), &b = concentration0();
  const Tensor harmonic = digamma(b + 1) + kEuler;
  return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - log(a) - log(b);
}

// ---- of normal numbers -------------------------------------------------------------------------------------------

LogNormal::LogNormal(const Argument& loc, const Argument& scale, const Options& options) {
  const Normal base(loc, scale, options);
  add("loc", constraints::real(), base.loc(), Seen::Quiet);
  add("scale", constraints::positive(), base.scale(), Seen::Quiet);
  finish_transformed(base, {ExpTransform()}, options);
}
Tensor LogNormal::mean() const { return (loc() + scale().pow(2) / 2).exp(); }
Tensor LogNormal::mode() const { return (loc() - scale().square()).exp(); }
Tensor LogNormal::variance() const {
  const Tensor square = scale().pow(2);
  return square.expm1() * (2 * loc() + square).exp();
}
Tensor LogNormal::entropy() const { return base_->entropy() + loc(); }

static Normal of_vectors(const Normal& base) { return base.batch_shape().empty() ? base.expand({1}) : base; }
// The parameters have the event's dimension after the batch, with one number less than a sample.
LogisticNormal::LogisticNormal(const Argument& loc, const Argument& scale, const Options& options) {
  const Normal base = of_vectors(Normal(loc, scale, options));
  add("loc", constraints::real(), base.loc(), Seen::Quiet);
  add("scale", constraints::positive(), base.scale(), Seen::Quiet);
  finish_transformed(base, {StickBreakingTransform()}, options);
}
void LogisticNormal::widen(IntArrayRef batch_shape) {
  const DimVector shape = joined(batch_shape, last(loc().sizes(), 1));
  Distribution::widen(shape);
  base_ = base_->expand(batch_shape);
}

// ---- of exponential numbers --------------------------------------------------------------------------------------

Pareto::Pareto(const Argument& scale, const Argument& alpha, const Options& options) {
  const auto both = broadcast_all({scale, alpha});
  add("alpha", constraints::positive(), both[1]);
  add("scale", constraints::positive(), both[0]);
  finish_transformed(Exponential(both[1], options), {ExpTransform(), AffineTransform(0, both[0])}, options);
}
Tensor Pareto::mean() const {
  const Tensor a = alpha().clamp(Scalar(1));  // at 1 and below: infinite
  return a * scale() / (a - 1);
}
Tensor Pareto::variance() const {
  const Tensor a = alpha().clamp(Scalar(2));  // at 2 and below: infinite
  return scale().pow(2) * a / ((a - 1).pow(2) * (a - 2));
}
Tensor Pareto::entropy() const { return (scale() / alpha()).log() + (1 + alpha().reciprocal()); }

Weibull::Weibull(const Argument& scale, const Argument& concentration, const Options& options) {
  const auto both = broadcast_all({scale, concentration});
  add("scale", constraints::positive(), both[0]);
  add("concentration", constraints::positive(), both[1]);
  finish_transformed(Exponential(ones_like(both[0]), options), steps(), options);
}
std::vector<Transform> Weibull::steps() const {
  return {PowerTransform(concentration().reciprocal()), AffineTransform(0, scale())};
}
void Weibull::widen(IntArrayRef batch_shape) {
  Distribution::widen(batch_shape);
  transforms_ = steps();
  base_ = base_->expand(batch_shape);
}
Tensor Weibull::mean() const { return scale() * exp(lgamma(1 + concentration().reciprocal())); }
Tensor Weibull::mode() const {
  return scale() * ((concentration() - 1) / concentration()).pow(concentration().reciprocal());
}
Tensor Weibull::variance() const {
  const Tensor shape = concentration().reciprocal();
  return scale().pow(2) * (exp(lgamma(1 + 2 * shape)) - exp(2 * lgamma(1 + shape)));
}
Tensor Weibull::entropy() const {
  const Tensor shape = concentration().reciprocal();
  return kEuler * (1 - shape) + log(scale() * shape) + 1;
}

// ---- relaxed -----------------------------------------------------------------------------------------------------

static const Tensor& checked_temperature(const Tensor& temperature) {
  MICA_CHECK_KIND(temperature.defined(), Value, "temperature must be a defined tensor");
  return temperature;
}

LogitRelaxedBernoulli::LogitRelaxedBernoulli(const Tensor& temperature, const OddsOptions& odds)
    : temperature_(checked_temperature(temperature)) {
  check_one_of_two(odds);
  const Tensor value = broadcast_all({odds.probs ? *odds.probs : *odds.logits})[0];
  add_odds(odds, value, constraints::unit_interval());
  finish(value.sizes(), {}, {odds.validate_args});
}
Tensor LogitRelaxedBernoulli::rsample(IntArrayRef sample_shape) const {
  const DimVector shape = extended_shape(sample_shape);
  const Tensor p = clamp_probs(probs().expand(shape));
  const Tensor u = clamp_probs(rand(shape, p.options()));
  return (u.log() - (-u).log1p() + p.log() - (-p).log1p()) / temperature_;
}
Tensor LogitRelaxedBernoulli::log_prob(const Tensor& value) const {
  check(value);
  const auto both = broadcast_all({logits(), value});
  const Tensor diff = both[0] - both[1].mul(temperature_);
  return temperature_.log() + diff - 2 * diff.exp().log1p();
}
RelaxedBernoulli::RelaxedBernoulli(const Tensor& temperature, const OddsOptions& odds) {
  const LogitRelaxedBernoulli base(temperature, {odds.probs, odds.logits, std::nullopt});
  add("probs", constraints::unit_interval(), base.probs(), Seen::Quiet);
  add("logits", constraints::real(), base.logits(), Seen::Quiet);
  finish_transformed(base, {SigmoidTransform()}, {odds.validate_args});
}

ExpRelaxedCategorical::ExpRelaxedCategorical(const Tensor& temperature, const OddsOptions& odds)
    : Family(odds), temperature_(checked_temperature(temperature)) {
  finish_categorical(odds.validate_args);
}
Tensor ExpRelaxedCategorical::rsample(IntArrayRef sample_shape) const {
  const Tensor u = clamp_probs(rand(extended_shape(sample_shape), logits().options()));
  const Tensor scores = (logits() - (-(u.log())).log()) / temperature_;
  return scores - scores.logsumexp({-1}, true);
}
Tensor ExpRelaxedCategorical::log_prob(const Tensor& value) const {
  check(value);
  const auto count = static_cast<double>(categorical().num_events());
  const auto both = broadcast_all({logits(), value});
  const Tensor log_scale = full_like(temperature_, count).lgamma() - temperature_.log().mul(-(count - 1));
  const Tensor score = both[0] - both[1].mul(temperature_);
  return (score - score.logsumexp({-1}, true)).sum({-1}) + log_scale;
}
RelaxedOneHotCategorical::RelaxedOneHotCategorical(const Tensor& temperature, const OddsOptions& odds) {
  const ExpRelaxedCategorical base(temperature, odds);
  add("probs", constraints::simplex(), base.probs(), Seen::Quiet);
  add("logits", constraints::real_vector(), base.logits(), Seen::Quiet);
  finish_transformed(base, {ExpTransform()}, {odds.validate_args});
}

}  // namespace mica::distributions
