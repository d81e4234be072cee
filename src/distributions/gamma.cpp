// Exponential, gamma, Dirichlet and beta distributions, and the ratios of such numbers.
#include <cmath>

#include "distributions/shared.h"
#include "mica/distributions/continuous.h"
#include "mica/generated/layers/sampling.h"

namespace mica::distributions {

// ---- exponential -------------------------------------------------------------------------------------------------

Exponential::Exponential(const Argument& rate, const Options& options) {
  const Tensor value = broadcast_all({rate})[0];
  add("rate", constraints::positive(), value);
  finish(value.sizes(), {}, options);
}
Tensor Exponential::mean() const { return rate().reciprocal(); }
Tensor Exponential::mode() const { return zeros_like(rate()); }
Tensor Exponential::stddev() const { return rate().reciprocal(); }
Tensor Exponential::variance() const { return rate().pow(-2); }
Tensor Exponential::rsample(IntArrayRef sample_shape) const {
  const Tensor noise = rate().new_empty(extended_shape(sample_shape));
  noise.exponential_();
  return noise / rate();
}
Tensor Exponential::log_prob(const Tensor& value) const {
  check(value);
  return rate().log() - rate() * value;
}
Tensor Exponential::cdf(const Tensor& value) const {
  check(value);
  return 1 - exp(-rate() * value);
}
Tensor Exponential::icdf(const Tensor& value) const { return -log1p(-value) / rate(); }
Tensor Exponential::entropy() const { return 1.0 - log(rate()); }
std::vector<Tensor> Exponential::natural_params() const { return {-rate()}; }
Tensor Exponential::log_normalizer(const std::vector<Tensor>& natural) const { return -log(-natural[0]); }

// ---- gamma -------------------------------------------------------------------------------------------------------

Gamma::Gamma(const Argument& concentration, const Argument& rate, const Options& options) {
  const auto both = broadcast_all({concentration, rate});
  add("concentration", constraints::positive(), both[0]);
  add("rate", constraints::positive(), both[1]);
  finish(both[0].sizes(), {}, options);
}
Tensor Gamma::mean() const { return concentration() / rate(); }
Tensor Gamma::mode() const { return ((concentration() - 1) / rate()).clamp(Scalar(0)); }
Tensor Gamma::variance() const { return concentration() / rate().pow(2); }
Tensor Gamma::rsample(IntArrayRef sample_shape) const {
  const DimVector shape = extended_shape(sample_shape);
  const Tensor value = _standard_gamma(concentration().expand(shape)) / rate().expand(shape);
  value.detach().clamp_(Scalar(limits_of(value).tiny));  // clamped outside of the graph, so that the slope stays
  return value;
}
Tensor Gamma::log_prob(const Tensor& given) const {
  const Tensor value = given.defined() ? given.to(rate().options()) : given;
  check(value);
  return xlogy(concentration(), rate()) + xlogy(concentration() - 1, value) - rate() * value - lgamma(concentration());
}
Tensor Gamma::cdf(const Tensor& value) const {
  check(value);
  return igamma(concentration(), rate() * value);
}
Tensor Gamma::entropy() const {
  return concentration() - log(rate()) + lgamma(concentration()) + (1.0 - concentration()) * digamma(concentration());
}
std::vector<Tensor> Gamma::natural_params() const { return {concentration() - 1, -rate()}; }
Tensor Gamma::log_normalizer(const std::vector<Tensor>& natural) const {
  return lgamma(natural[0] + 1) + (natural[0] + 1) * log(-natural[1].reciprocal());
}

Chi2::Chi2(const Argument& df, const Options& options) {
  const Argument half = df.is_number() ? Argument(0.5 * df.number().to_double()) : Argument(0.5 * df.tensor());
  const auto both = broadcast_all({half, 0.5});
  add("concentration", constraints::positive(), both[0], Seen::Hidden);
  add("rate", constraints::positive(), both[1], Seen::Hidden);
  add("df", constraints::positive(), both[0] * 2, Seen::Quiet);
  finish(both[0].sizes(), {}, options);
}

// ---- Dirichlet and beta ------------------------------------------------------------------------------------------

Dirichlet::Dirichlet(const Tensor& concentration, const Options& options) {
  MICA_CHECK_KIND(concentration.defined() && concentration.dim() >= 1, Value,
                  "`concentration` parameter must be at least one-dimensional.");
  add("concentration", constraints::independent(constraints::positive(), 1), concentration);
  finish(without_last(concentration.sizes()), last(concentration.sizes(), 1), options);
}
Tensor Dirichlet::rsample(IntArrayRef sample_shape) const {
  return _sample_dirichlet(concentration().expand(extended_shape(sample_shape)));
}
Tensor Dirichlet::log_prob(const Tensor& value) const {
  check(value);
  const Tensor constant = lgamma(concentration().sum({-1})) - lgamma(concentration()).sum({-1});
  return xlogy(concentration() - 1.0, value).sum({-1}) + constant;
}
Tensor Dirichlet::mean() const { return concentration() / concentration().sum({-1}, true); }
Tensor Dirichlet::mode() const {
  const Tensor above = (concentration() - 1).clamp(Scalar(0.0));
  const Tensor mode = above / above.sum({-1}, true);
  // Where all the mass is at the corners, the first of them.
  const Tensor corners = (concentration() < 1).all(-1);
  const Tensor corner = one_hot(mode.argmax(-1), above.size(-1)).to(mode.options());
  return where(corners.unsqueeze(-1), corner, mode);
}
Tensor Dirichlet::variance() const {
  const Tensor total = concentration().sum({-1}, true);
  return concentration() * (total - concentration()) / (total.pow(2) * (total + 1));
}
Tensor Dirichlet::entropy() const {
  const Tensor total = concentration().sum({-1});
  return lgamma(concentration()).sum({-1}) - lgamma(total) - (concentration().size(-1) - total) * digamma(total) -
         ((concentration() - 1.0) * digamma(concentration())).sum({-1});
}
std::vector<Tensor> Dirichlet::natural_params() const { return {concentration()}; }
Tensor Dirichlet::log_normalizer(const std::vector<Tensor>& natural) const {
  return natural[0].lgamma().sum({-1}) - lgamma(natural[0].sum({-1}));
}

Beta::Beta(const Argument& concentration1, const Argument& concentration0, const Options& options)
    : dirichlet_(stack(broadcast_all({concentration1, concentration0}), -1), options) {
  add("concentration1", constraints::positive(), dirichlet_.concentration().select(-1, 0), Seen::Quiet);
  add("concentration0", constraints::positive(), dirichlet_.concentration().select(-1, 1), Seen::Quiet);
  finish(dirichlet_.batch_shape(), {}, options);
}
void Beta::widen(IntArrayRef batch_shape) {
  Distribution::widen(batch_shape);
  dirichlet_ = dirichlet_.expand(batch_shape);
}
Tensor Beta::mean() const { return concentration1() / (concentration1() + concentration0()); }
Tensor Beta::mode() const { return dirichlet_.mode().select(-1, 0); }
Tensor Beta::variance() const {
  const Tensor total = concentration1() + concentration0();
  return concentration1() * concentration0() / (total.pow(2) * (total + 1));
}
Tensor Beta::rsample(IntArrayRef sample_shape) const { return dirichlet_.rsample(sample_shape).select(-1, 0); }
Tensor Beta::log_prob(const Tensor& value) const {
  check(value);
  return dirichlet_.log_prob(stack({value, 1.0 - value}, -1));
}
Tensor Beta::entropy() const { return dirichlet_.entropy(); }
std::vector<Tensor> Beta::natural_params() const { return {concentration1(), concentration0()}; }
Tensor Beta::log_normalizer(const std::vector<Tensor>& natural) const {
  return lgamma(natural[0]) + lgamma(natural[1]) - lgamma(natural[0] + natural[1]);
}

// ---- Fisher-Snedecor ---------------------------------------------------------------------------------------------

FisherSnedecor::FisherSnedecor(const Argument& df1, const Argument& df2, const Options& options) {
  const auto both = broadcast_all({df1, df2});
  add("df1", constraints::positive(), both[0]);
  add("df2", constraints::positive(), both[1]);
  finish(both[0].sizes(), {}, options);
}
Tensor FisherSnedecor::mean() const {
  const Tensor finite = df2().masked_fill(df2() <= 2, kNan);
  return finite / (finite - 2);
}
Tensor FisherSnedecor::mode() const {
  const Tensor mode = (df1() - 2) / df1() * df2() / (df2() + 2);
  return mode.masked_fill(df1() <= 2, kNan);
}
Tensor FisherSnedecor::variance() const {
  const Tensor finite = df2().masked_fill(df2() <= 4, kNan);
  return 2 * finite.pow(2) * (df1() + finite - 2) / (df1() * (finite - 2).pow(2) * (finite - 4));
}
Tensor FisherSnedecor::rsample(IntArrayRef sample_shape) const {
  const Options unchecked{.validate_args = false};
  const Tensor over = Gamma(df1() * 0.5, df1(), unchecked).rsample(sample_shape);
  const Tensor under = Gamma(df2() * 0.5, df2(), unchecked).rsample(sample_shape);
  const double tiny = limits_of(under).tiny;
  return clamp_below(over / clamp_below(under, tiny), tiny);
}
Tensor FisherSnedecor::log_prob(const Tensor& value) const {
  check(value);
  const Tensor half1 = df1() * 0.5, half2 = df2() * 0.5, ratio = df1() / df2(), both = half1 + half2;
  const Tensor normalizer = both.lgamma() - half1.lgamma() - half2.lgamma();
  const Tensor power = half1 * ratio.log() + (half1 - 1) * log(value);
  return normalizer + power - both * log1p(ratio * value);
}

// ---- Student's t -------------------------------------------------------------------------------------------------

StudentT::StudentT(const Argument& df, const Argument& loc, const Argument& scale, const Options& options) {
  const auto all = broadcast_all({df, loc, scale});
  add("df", constraints::positive(), all[0]);
  add("loc", constraints::real(), all[1]);
  add("scale", constraints::positive(), all[2]);
  finish(all[0].sizes(), {}, options);
}
Tensor StudentT::mean() const { return loc().masked_fill(df() <= 1, kNan); }
Tensor StudentT::variance() const {
  const Tensor finite = scale().pow(2) * df() / (df() - 2);
  return finite.masked_fill(df() <= 2, kInf).masked_fill(df() <= 1, kNan);
}
// A normal number divided by the root of a chi-squared number over its degrees of freedom.
Tensor StudentT::rsample(IntArrayRef sample_shape) const {
  const Tensor noise = standard_normal(extended_shape(sample_shape), df());
  const Tensor chi2 = Chi2(df(), {.validate_args = false}).rsample(sample_shape);
  return loc() + scale() * (noise * rsqrt(chi2 / df()));
}
static Tensor log_beta_of(const Tensor& df) { return lgamma(0.5 * df) - lgamma(0.5 * (df + 1.0)); }
Tensor StudentT::log_prob(const Tensor& value) const {
  check(value);
  const Tensor y = (value - loc()) / scale();
  const Tensor normalizer = scale().log() + 0.5 * df().log() + 0.5 * std::log(kPi) + log_beta_of(df());
  return -0.5 * (df() + 1.0) * log1p(y.pow(2.0) / df()) - normalizer;
}
Tensor StudentT::entropy() const {
  const Tensor slope = digamma(0.5 * (df() + 1)) - digamma(0.5 * df());
  const double half_log_pi = 0.5 * std::log(kPi);  // lgamma(1/2)
  return scale().log() + 0.5 * (df() + 1) * slope + 0.5 * df().log() + (log_beta_of(df()) + half_log_pi);
}

}  // namespace mica::distributions
