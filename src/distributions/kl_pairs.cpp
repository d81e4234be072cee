// Divergences between families.
#include <cmath>

#include "distributions/kl_entries.h"
#include "distributions/shared.h"
#include "mica/distributions.h"

namespace mica::distributions {

namespace {

// Infinity, in the shape of one of p's parameters, where p has mass and q has none.
template <class P, class... Qs, class F>
void add_infinite(const Register& add, F parameter) {
  (add_divergence<P, Qs>(add, [parameter](const P& p, const Qs&) { return full_like(parameter(p), kInf); }), ...);
}

Tensor x_log_x(const Tensor& x) { return xlogy(x, x); }
// The mean of log x over an interval.
Tensor mean_log(const Uniform& p) {
  const Tensor width = p.high() - p.low();
  return (x_log_x(p.high()) - x_log_x(p.low()) - width) / width;
}
// The logarithm of a gamma density's normalizer.
Tensor log_gamma_norm(const Gamma& q) { return q.concentration().lgamma() - q.concentration() * q.rate().log(); }
// The mean of -log of a normal density under a distribution.
Tensor cross_normal(const Distribution& p, const Normal& q) {
  return q.scale().log() + 0.5 * std::log(2 * kPi) +
         0.5 * (p.variance() + (p.mean() - q.loc()).pow(2)) / q.scale().pow(2);
}
Tensor cross_continuous_bernoulli(const Distribution& p, const ContinuousBernoulli& q) {
  return -p.mean() * q.logits() - log1p(-q.probs()) - q.log_norm();
}
Tensor to_normal(const Distribution& p, const Normal& q) { return -p.entropy() + cross_normal(p, q); }

// ---- from discrete ones and from those on [0, 1] -----------------------------------------------------------------

Tensor bernoulli_poisson(const Bernoulli& p, const Poisson& q) {
  return -p.entropy() - (p.probs() * q.rate().log() - q.rate());
}
Tensor beta_continuous_bernoulli(const Beta& p, const ContinuousBernoulli& q) {
  return -p.entropy() + cross_continuous_bernoulli(p, q);
}
Tensor beta_exponential(const Beta& p, const Exponential& q) {
  return -p.entropy() - q.rate().log() + q.rate() * p.mean();
}
Tensor beta_gamma(const Beta& p, const Gamma& q) {
  const Tensor mean_of_log = p.concentration1().digamma() - (p.concentration1() + p.concentration0()).digamma();
  return -p.entropy() + log_gamma_norm(q) - (q.concentration() - 1) * mean_of_log + q.rate() * p.mean();
}
Tensor beta_uniform(const Beta& p, const Uniform& q) {
  const Tensor result = -p.entropy() + (q.high() - q.low()).log();
  return result.masked_fill((q.low() > 0.0) | (q.high() < 1.0), kInf);
}
Tensor continuous_bernoulli_exponential(const ContinuousBernoulli& p, const Exponential& q) {
  return -p.entropy() - log(q.rate()) + q.rate() * p.mean();
}
// Infinite on torch's condition: a uniform distribution that ends inside, or with, the unit interval.
Tensor continuous_bernoulli_uniform(const ContinuousBernoulli& p, const Uniform& q) {
  const Tensor result = -p.entropy() + (q.high() - q.low()).log();
  return where((q.low() >= 0.0) | (q.high() <= 1.0), ones_like(result) * kInf, result);
}

// ---- from those on the positive numbers --------------------------------------------------------------------------

Tensor exponential_gamma(const Exponential& p, const Gamma& q) {
  const Tensor ratio = q.rate() / p.rate(), &shape = q.concentration();
  return -shape * log(ratio) + ratio + shape.lgamma() + shape * kEuler - (1 + kEuler);
}
Tensor exponential_gumbel(const Exponential& p, const Gumbel& q) {
  const Tensor product = p.rate() * q.scale(), place = q.loc() / q.scale();
  return product.log() - 1 - place + exp(place) * product / (product + 1) + product.reciprocal();
}
Tensor gamma_exponential(const Gamma& p, const Exponential& q) {
  return -p.entropy() - q.rate().log() + q.rate() * p.concentration() / p.rate();
}
Tensor gamma_gumbel(const Gamma& p, const Gumbel& q) {
  const Tensor product = p.rate() * q.scale(), place = q.loc() / q.scale(), &shape = p.concentration();
  const Tensor own = (shape - 1) * shape.digamma() - shape.lgamma() - shape;
  const Tensor tail = exp(place) * (1 + product.reciprocal()).pow(-shape) - place;
  return own + product.log() + shape / product + tail;
}
Tensor pareto_exponential(const Pareto& p, const Exponential& q) {
  const Tensor product = p.scale() * q.rate();
  const Tensor mean = p.alpha() * product / (p.alpha() - 1);
  const Tensor result = (p.alpha() / product).log() - p.alpha().reciprocal() + mean - 1;
  return result.masked_fill(p.alpha() <= 1, kInf);
}
Tensor pareto_gamma(const Pareto& p, const Gamma& q) {
  const Tensor mean_of_log = p.scale().log() + p.alpha().reciprocal();
  const Tensor mean = q.rate() * p.alpha() * p.scale() / (p.alpha() - 1);
  const Tensor result =
      p.alpha().log() - mean_of_log + log_gamma_norm(q) + (1 - q.concentration()) * mean_of_log + mean - 1;
  return result.masked_fill(p.alpha() <= 1, kInf);
}
Tensor pareto_normal(const Pareto& p, const Normal& q) {
  const Tensor step = p.scale() / (p.alpha() - 1);
  const Tensor spread = p.alpha() * step.pow(2) / (p.alpha() - 2);
  const Tensor away = (p.alpha() * step - q.loc()).pow(2);
  const Tensor own = (std::sqrt(2 * kPi) * q.scale() * p.alpha() / p.scale()).log() - p.alpha().reciprocal();
  return (own + (spread + away) / (2 * q.scale().pow(2)) - 1).masked_fill(p.alpha() <= 2, kInf);
}

// ---- from those on the real line ---------------------------------------------------------------------------------

Tensor gumbel_normal(const Gumbel& p, const Normal& q) {
  const Tensor ratio = p.scale() / q.scale();
  const Tensor spread = (kPi * ratio * 0.5).pow(2) / 3;
  const Tensor away = ((p.loc() + p.scale() * kEuler - q.loc()) / q.scale()).pow(2) * 0.5;
  return -(ratio / std::sqrt(2 * kPi)).log() + spread + away - (kEuler + 1);
}
Tensor normal_gumbel(const Normal& p, const Gumbel& q) {
  const Tensor mean = p.loc() / q.scale(), place = q.loc() / q.scale(), squared = (p.scale() / q.scale()).pow(2);
  const Tensor tail = exp(-mean + 0.5 * squared + place);
  return -squared.log() * 0.5 + mean - place + tail - 0.5 * (1 + std::log(2 * kPi));
}
Tensor normal_laplace(const Normal& p, const Laplace& q) {
  const Tensor apart = p.loc() - q.loc(), ratio = apart / p.scale();
  const Tensor near = std::sqrt(2 / kPi) * p.scale() * exp(-0.5 * ratio.pow(2));
  const Tensor far = apart * erf(std::sqrt(0.5) * ratio);
  return -log(p.scale() / q.scale()) + (near + far) / q.scale() - 0.5 * (1 + std::log(0.5 * kPi));
}

// ---- from uniform ones -------------------------------------------------------------------------------------------

Tensor uniform_beta(const Uniform& p, const Beta& q) {
  const Tensor width = p.high() - p.low();
  const Tensor below = (x_log_x(1 - p.high()) - x_log_x(1 - p.low()) + width) / width;
  const Tensor norm =
      q.concentration1().lgamma() + q.concentration0().lgamma() - (q.concentration1() + q.concentration0()).lgamma();
  const Tensor result = (q.concentration0() - 1) * below + norm - log(width) - (q.concentration1() - 1) * mean_log(p);
  return result.masked_fill((p.high() > 1.0) | (p.low() < 0.0), kInf);
}
// Infinite on torch's condition, with the bounds themselves.
Tensor uniform_continuous_bernoulli(const Uniform& p, const ContinuousBernoulli& q) {
  const Tensor result = -p.entropy() + cross_continuous_bernoulli(p, q);
  return where((p.high() >= 1.0) | (p.low() <= 0.0), ones_like(result) * kInf, result);
}
Tensor uniform_exponential(const Uniform& p, const Exponential& q) {
  const Tensor result = q.rate() * (p.high() + p.low()) / 2 - ((p.high() - p.low()) * q.rate()).log();
  return result.masked_fill(p.low() < 0.0, kInf);
}
Tensor uniform_gamma(const Uniform& p, const Gamma& q) {
  const Tensor result = log_gamma_norm(q) - (p.high() - p.low()).log() + (1 - q.concentration()) * mean_log(p);
  return (result + q.rate() * (p.high() + p.low()) / 2).masked_fill(p.low() < 0.0, kInf);
}
Tensor uniform_gumbel(const Uniform& p, const Gumbel& q) {
  const Tensor ratio = q.scale() / (p.high() - p.low());
  const Tensor high = (p.high() - q.loc()) / q.scale(), low = (p.low() - q.loc()) / q.scale();
  return ratio.log() + 0.5 * (high + low) - ratio * (exp(-high) - exp(-low));
}
Tensor uniform_pareto(const Uniform& p, const Pareto& q) {
  const Tensor width = p.high() - p.low();
  const Tensor result = mean_log(p) * (q.alpha() + 1) - (q.alpha() * q.scale().pow(q.alpha()) * width).log();
  return result.masked_fill(p.low() < q.scale(), kInf);
}

template <class P, class Q>
void between(const Register& add, Tensor (*divergence)(const P&, const Q&)) {
  add_divergence<P, Q>(add, divergence);
}
template <class... Ps>
void add_to_normal(const Register& add) {
  (add_divergence<Ps, Normal>(add, to_normal), ...);
}

}  // namespace

void add_divergences_between_families(const Register& add) {
  using CB = ContinuousBernoulli;
  add_infinite<Beta, Pareto>(add, [](const Beta& p) { return p.concentration1(); });
  add_infinite<CB, Pareto>(add, [](const CB& p) { return p.probs(); });
  add_infinite<Exponential, Beta, CB, Pareto, Uniform>(add, [](const Exponential& p) { return p.rate(); });
  add_infinite<Gamma, Beta, CB, Pareto, Uniform>(add, [](const Gamma& p) { return p.concentration(); });
  add_infinite<Gumbel, Beta, CB, Exponential, Gamma, Pareto, Uniform>(add, [](const Gumbel& p) { return p.loc(); });
  add_infinite<Laplace, Beta, CB, Exponential, Gamma, Pareto, Uniform>(add, [](const Laplace& p) { return p.loc(); });
  add_infinite<Normal, Beta, CB, Exponential, Gamma, Pareto, Uniform>(add, [](const Normal& p) { return p.loc(); });
  add_infinite<Pareto, Beta, CB, Uniform>(add, [](const Pareto& p) { return p.scale(); });
  add_infinite<Poisson, Bernoulli, Binomial>(add, [](const Poisson& p) { return p.rate(); });
  add_to_normal<Beta, CB, Exponential, Gamma, Laplace, Uniform>(add);
  between(add, bernoulli_poisson);
  between(add, beta_continuous_bernoulli);
  between(add, beta_exponential);
  between(add, beta_gamma);
  between(add, beta_uniform);
  between(add, continuous_bernoulli_exponential);
  between(add, continuous_bernoulli_uniform);
  between(add, exponential_gamma);
  between(add, exponential_gumbel);
  between(add, gamma_exponential);
  between(add, gamma_gumbel);
  between(add, gumbel_normal);
  between(add, normal_gumbel);
  between(add, normal_laplace);
  between(add, pareto_exponential);
  between(add, pareto_gamma);
  between(add, pareto_normal);
  between(add, uniform_beta);
  between(add, uniform_continuous_bernoulli);
  between(add, uniform_exponential);
  between(add, uniform_gamma);
  between(add, uniform_gumbel);
  between(add, uniform_pareto);
}

}  // namespace mica::distributions
