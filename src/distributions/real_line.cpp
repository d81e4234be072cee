// Normal, Cauchy, Laplace, uniform, generalized Pareto and von Mises distributions.
#include <cmath>
#include <span>

#include "distributions/shared.h"
#include "mica/core/grad_mode.h"
#include "mica/distributions/continuous.h"

namespace mica::distributions {

// ---- normal ------------------------------------------------------------------------------------------------------

Normal::Normal(const Argument& loc, const Argument& scale, const Options& options) {
  const auto both = broadcast_all({loc, scale});
  add("loc", constraints::real(), both[0]);
  add("scale", constraints::positive(), both[1]);
  finish(both[0].sizes(), {}, options);
}
Tensor Normal::variance() const { return scale().pow(2); }
Tensor Normal::sample(IntArrayRef sample_shape) const {
  const DimVector shape = extended_shape(sample_shape);
  NoGradGuard no_grad;
  return normal(loc().expand(shape), scale().expand(shape));
}
Tensor Normal::rsample(IntArrayRef sample_shape) const {
  return loc() + standard_normal(extended_shape(sample_shape), loc()) * scale();
}
Tensor Normal::log_prob(const Tensor& value) const {
  check(value);
  const Tensor distance = (value - loc()).pow(2) / (2 * scale().pow(2));
  return -distance - scale().log() - std::log(std::sqrt(2 * kPi));
}
Tensor Normal::cdf(const Tensor& value) const {
  check(value);
  return 0.5 * (1 + erf((value - loc()) * scale().reciprocal() / std::sqrt(2.0)));
}
Tensor Normal::icdf(const Tensor& value) const { return loc() + scale() * erfinv(2 * value - 1) * std::sqrt(2.0); }
Tensor Normal::entropy() const { return 0.5 + 0.5 * std::log(2 * kPi) + log(scale()); }
std::vector<Tensor> Normal::natural_params() const {
  return {loc() / scale().pow(2), -0.5 * scale().pow(2).reciprocal()};
}
Tensor Normal::log_normalizer(const std::vector<Tensor>& natural) const {
  return -0.25 * natural[0].pow(2) / natural[1] + 0.5 * log(-kPi / natural[1]);
}

// ---- Cauchy ------------------------------------------------------------------------------------------------------

Cauchy::Cauchy(const Argument& loc, const Argument& scale, const Options& options) {
  const auto both = broadcast_all({loc, scale});
  add("loc", constraints::real(), both[0]);
  add("scale", constraints::positive(), both[1]);
  finish(both[0].sizes(), {}, options);
}
Tensor Cauchy::mean() const { return filled(kNan, loc()); }
Tensor Cauchy::variance() const { return filled(kInf, loc()); }
Tensor Cauchy::rsample(IntArrayRef sample_shape) const {
  const Tensor noise = loc().new_empty(extended_shape(sample_shape));
  noise.cauchy_();
  return loc() + noise * scale();
}
Tensor Cauchy::log_prob(const Tensor& value) const {
  check(value);
  return -std::log(kPi) - scale().log() - ((value - loc()) / scale()).pow(2).log1p();
}
Tensor Cauchy::cdf(const Tensor& value) const {
  check(value);
  return atan((value - loc()) / scale()) / kPi + 0.5;
}
Tensor Cauchy::icdf(const Tensor& value) const { return tan(kPi * (value - 0.5)) * scale() + loc(); }
Tensor Cauchy::entropy() const { return std::log(4 * kPi) + scale().log(); }

// ---- Laplace -----------------------------------------------------------------------------------------------------

Laplace::Laplace(const Argument& loc, const Argument& scale, const Options& options) {
  const auto both = broadcast_all({loc, scale});
  add("loc", constraints::real(), both[0]);
  add("scale", constraints::positive(), both[1]);
  finish(both[0].sizes(), {}, options);
}
Tensor Laplace::stddev() const { return std::sqrt(2.0) * scale(); }
Tensor Laplace::variance() const { return 2 * scale().pow(2); }
Tensor Laplace::rsample(IntArrayRef sample_shape) const {
  const Tensor u = loc().new_empty(extended_shape(sample_shape));
  u.uniform_(limits_of(loc()).eps - 1, 1);
  return loc() - scale() * u.sign() * log1p(-u.abs());
}
Tensor Laplace::log_prob(const Tensor& value) const {
  check(value);
  return -log(2 * scale()) - abs(value - loc()) / scale();
}
Tensor Laplace::cdf(const Tensor& value) const {
  check(value);
  const Tensor away = value - loc();
  return 0.5 - 0.5 * away.sign() * expm1(-away.abs() / scale());
}
Tensor Laplace::icdf(const Tensor& value) const {
  const Tensor term = value - 0.5;
  return loc() - scale() * term.sign() * log1p(-2 * term.abs());
}
Tensor Laplace::entropy() const { return 1 + log(2 * scale()); }

// ---- uniform -----------------------------------------------------------------------------------------------------

Uniform::Uniform(const Argument& low, const Argument& high, const Options& options) {
  const auto both = broadcast_all({low, high});
  add("low", constraints::less_than(both[1]), both[0]);
  add("high", constraints::greater_than(both[0]), both[1]);
  finish(both[0].sizes(), {}, options);
}
Tensor Uniform::mean() const { return (high() + low()) / 2; }
Tensor Uniform::mode() const { return kNan * high(); }
Tensor Uniform::stddev() const { return (high() - low()) / std::sqrt(12.0); }
Tensor Uniform::variance() const { return (high() - low()).pow(2) / 12; }
Tensor Uniform::rsample(IntArrayRef sample_shape) const {
  const Tensor u = rand(extended_shape(sample_shape), low().options());
  return low() + u * (high() - low());
}
Tensor Uniform::log_prob(const Tensor& value) const {
  check(value);
  const Tensor inside = (low() <= value).type_as(low()) * (high() > value).type_as(low());
  return log(inside) - log(high() - low());
}
Tensor Uniform::cdf(const Tensor& value) const {
  check(value);
  return ((value - low()) / (high() - low())).clamp(Scalar(0), Scalar(1));
}
Tensor Uniform::icdf(const Tensor& value) const { return value * (high() - low()) + low(); }
Tensor Uniform::entropy() const { return log(high() - low()); }

// ---- generalized Pareto ------------------------------------------------------------------------------------------

GeneralizedPareto::GeneralizedPareto(const Argument& loc, const Argument& scale, const Argument& concentration,
                                     const Options& options) {
  const auto all = broadcast_all({loc, scale, concentration});
  add("loc", constraints::real(), all[0]);
  add("scale", constraints::positive(), all[1]);
  add("concentration", constraints::real(), all[2]);
  finish(all[0].sizes(), {}, options);
}
std::pair<Tensor, Tensor> GeneralizedPareto::shape_or_one() const {
  const Tensor zero = isclose(concentration(), zeros_like(concentration()));
  return {zero, where(zero, ones_like(concentration()), concentration())};
}
Constraint GeneralizedPareto::support() const {
  return constraints::interval(loc(), where(concentration() < 0, loc() - scale() / concentration(), kInf));
}
Tensor GeneralizedPareto::mean() const {
  const Tensor valid = concentration() < 1;
  return where(valid, loc() + scale() / (1 - where(valid, concentration(), 0.5)), kNan);
}
Tensor GeneralizedPareto::variance() const {
  const Tensor valid = concentration() < 0.5, c = where(valid, concentration(), 0.25);
  return where(valid, scale().pow(2) / ((1 - c).pow(2) * (1 - 2 * c)), kNan);
}
Tensor GeneralizedPareto::rsample(IntArrayRef sample_shape) const {
  return icdf(rand(extended_shape(sample_shape), loc().options()));
}
Tensor GeneralizedPareto::log_prob(const Tensor& value) const {
  check(value);
  const Tensor z = (value - loc()) / scale();
  const auto [zero, shape] = shape_or_one();
  const Tensor power = 1 / shape + ones_like(z);
  const Tensor curved = where(power == 0, power, power * log1p(shape * z));
  return -scale().log() - where(zero, z, curved);
}
Tensor GeneralizedPareto::log_survival_function(const Tensor& value) const {
  check(value);
  const Tensor z = (value - loc()) / scale();
  const auto [zero, shape] = shape_or_one();
  return where(zero, -z, -log1p(shape * z) / shape);
}
Tensor GeneralizedPareto::log_cdf(const Tensor& value) const { return log1p(-exp(log_survival_function(value))); }
Tensor GeneralizedPareto::cdf(const Tensor& value) const { return exp(log_cdf(value)); }
Tensor GeneralizedPareto::icdf(const Tensor& value) const {
  const auto [zero, shape] = shape_or_one();
  const Tensor above = log1p(-value);
  return where(zero, loc() - scale() * above, loc() + scale() / shape * expm1(-shape * above));
}
Tensor GeneralizedPareto::entropy() const { return (log(scale()) + concentration() + 1).broadcast_to(batch_shape()); }

// ---- von Mises ---------------------------------------------------------------------------------------------------

// Abramowitz and Stegun, 9.8.1 to 9.8.4: I0 and I1 by (x / 3.75)^2 below 3.75, by 3.75 / x above.
static constexpr double kSmall[2][7] = {
    {1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2},
    {0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3}};
static constexpr double kLarge[2][9] = {{0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2,
                                         -0.2057706e-1, 0.2635537e-1, -0.1647633e-1, 0.392377e-2},
                                        {0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1,
                                         0.2282967e-1, -0.2895312e-1, 0.1787654e-1, -0.420059e-2}};

static Tensor polynomial(const Tensor& y, std::span<const double> coefficients) {
  Tensor result = coefficients[coefficients.size() - 2] + y * coefficients.back();
  for (size_t i = coefficients.size() - 2; i-- > 0;) result = coefficients[i] + y * result;
  return result;
}

// log I0(x) or log I1(x) of positive x.
static Tensor log_bessel(const Tensor& x, int order) {
  const Tensor y = x / 3.75;
  Tensor small = polynomial(y * y, kSmall[order]);
  small = (order == 1 ? x.abs() * small : small).log();
  const Tensor large = x - 0.5 * x.log() + polynomial(3.75 / x, kLarge[order]).log();
  return where(x < 3.75, small, large);
}

VonMises::VonMises(const Argument& loc, const Argument& concentration, const Options& options) {
  const auto both = broadcast_all({loc, concentration});
  add("loc", constraints::real(), both[0]);
  add("concentration", constraints::positive(), both[1]);
  finish(both[0].sizes(), {}, options);
}
Tensor VonMises::variance() const {
  return 1 - (log_bessel(concentration(), 1) - log_bessel(concentration(), 0)).exp();
}
Tensor VonMises::log_prob(const Tensor& value) const {
  check(value);
  const Tensor density = concentration() * cos(value - loc());
  return density - std::log(2 * kPi) - log_bessel(concentration(), 0);
}

// Best and Fisher's rejection (1979), in double: in float it would hardly end for small concentrations.
Tensor VonMises::sample(IntArrayRef sample_shape) const {
  NoGradGuard no_grad;
  const Tensor kappa = concentration().to(DType::Float64);
  const Tensor tau = 1 + (1 + 4 * kappa.pow(2)).sqrt();
  const Tensor rho = (tau - (2 * tau).sqrt()) / (2 * kappa);
  const Tensor r = where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho.pow(2)) / (2 * rho));
  Tensor x = zeros(extended_shape(sample_shape), kappa.options());
  // Where the parameters are not valid, no sample would ever be accepted, so the result is NaN there.
  const Tensor hopeless = (~(kappa > 0) | r.isnan()).expand(x.sizes());
  Tensor done = hopeless;
  while (!all_true(done)) {
    const std::vector<Tensor> u = rand(joined({3}, x.sizes()), x.options()).unbind();
    const Tensor z = cos(kPi * u[0]);
    const Tensor f = (1 + r * z) / (r + z);
    const Tensor c = kappa * (r - f);
    const Tensor accept = ((c * (2 - c) - u[1]) > 0) | ((c / u[1]).log() + 1 - c >= 0);
    // An accepted sample is drawn again with the others, because that is torch's stream.
    x = where(accept, (u[2] - 0.5).sign() * f.acos(), x);
    done = done | accept;
  }
  const Tensor angle = (x + kPi + loc().to(DType::Float64)) % (2 * kPi) - kPi;
  return angle.masked_fill(hopeless, kNan).to(loc().dtype());
}

}  // namespace mica::distributions
