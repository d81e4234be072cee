// Families that are transforms of others.
#pragma once

#include <optional>

#include "mica/distributions/compound.h"
#include "mica/distributions/continuous.h"

namespace mica::distributions {

// The distribution of the largest of many numbers: loc - scale log(-log u) of uniform u.
class Gumbel : public Family<Gumbel, TransformedDistribution> {
 public:
  static constexpr const char* kName = "Gumbel";
  Gumbel(const Argument& loc, const Argument& scale, const Options& options = {});
  const Tensor& loc() const { return parameter(0); }
  const Tensor& scale() const { return parameter(1); }
  Constraint support() const override { return constraints::real(); }
  Tensor mean() const override;
  Tensor mode() const override { return loc(); }
  Tensor stddev() const override;
  Tensor variance() const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
};

// The distribution of absolute values of numbers whose distribution is symmetric about zero.
class Half : public TransformedDistribution {
 public:
  static constexpr int kDepth = TransformedDistribution::kDepth;
  const Tensor& scale() const { return parameter(0); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::nonnegative(); }
  Tensor mode() const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& prob) const override;
  Tensor entropy() const override;

 protected:
  void finish_half(const Distribution& whole, const Tensor& scale, const Options& options);
};
class HalfNormal : public Family<HalfNormal, Half> {
 public:
  static constexpr const char* kName = "HalfNormal";
  explicit HalfNormal(const Argument& scale, const Options& options = {});
  Tensor mean() const override;
  Tensor variance() const override;
};
class HalfCauchy : public Family<HalfCauchy, Half> {
 public:
  static constexpr const char* kName = "HalfCauchy";
  explicit HalfCauchy(const Argument& scale, const Options& options = {});
  Tensor mean() const override;
  Tensor variance() const override;
};

class InverseGamma : public Family<InverseGamma, TransformedDistribution> {  // the reciprocals of gamma numbers
 public:
  static constexpr const char* kName = "InverseGamma";
  InverseGamma(const Argument& concentration, const Argument& rate, const Options& options = {});
  const Tensor& concentration() const { return parameter(0); }
  const Tensor& rate() const { return parameter(1); }
  Constraint support() const override { return constraints::positive(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor entropy() const override;
};

// Much like the beta distribution on [0, 1], with a distribution function in closed form.
class Kumaraswamy : public Family<Kumaraswamy, TransformedDistribution> {
 public:
  static constexpr const char* kName = "Kumaraswamy";
  Kumaraswamy(const Argument& concentration1, const Argument& concentration0, const Options& options = {});
  const Tensor& concentration1() const { return parameter(0); }
  const Tensor& concentration0() const { return parameter(1); }
  Constraint support() const override { return constraints::unit_interval(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor entropy() const override;

 private:
  Tensor moment(int64_t n) const;
};

// Numbers whose logarithms are normal with mean `loc` and standard deviation `scale`.
class LogNormal : public Family<LogNormal, TransformedDistribution> {
 public:
  static constexpr const char* kName = "LogNormal";
  LogNormal(const Argument& loc, const Argument& scale, const Options& options = {});
  const Tensor& loc() const { return parameter(0); }
  const Tensor& scale() const { return parameter(1); }
  Constraint support() const override { return constraints::positive(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor entropy() const override;
};

// Points of the simplex made of normal vectors by breaking a stick.
class LogisticNormal : public Family<LogisticNormal, TransformedDistribution> {
 public:
  static constexpr const char* kName = "LogisticNormal";
  LogisticNormal(const Argument& loc, const Argument& scale, const Options& options = {});
  const Tensor& loc() const { return parameter(0); }
  const Tensor& scale() const { return parameter(1); }
  Constraint support() const override { return constraints::simplex(); }

 protected:
  void widen(IntArrayRef batch_shape) override;
};

class Pareto : public Family<Pareto, TransformedDistribution> {  // above `scale`, falling off with the power `alpha`
 public:
  static constexpr const char* kName = "Pareto";
  Pareto(const Argument& scale, const Argument& alpha, const Options& options = {});
  const Tensor& alpha() const { return parameter(0); }
  const Tensor& scale() const { return parameter(1); }
  Constraint support() const override { return constraints::greater_than_eq(scale()); }
  Tensor mean() const override;
  Tensor mode() const override { return scale(); }
  Tensor variance() const override;
  Tensor entropy() const override;
};

class Weibull : public Family<Weibull, TransformedDistribution> {  // a power of an exponential number, scaled
 public:
  static constexpr const char* kName = "Weibull";
  Weibull(const Argument& scale, const Argument& concentration, const Options& options = {});
  const Tensor& scale() const { return parameter(0); }
  const Tensor& concentration() const { return parameter(1); }
  Constraint support() const override { return constraints::positive(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor entropy() const override;

 protected:
  void widen(IntArrayRef batch_shape) override;

 private:
  std::vector<Transform> steps() const;
};

// ---- relaxed distributions, whose samples have a gradient: Maddison et al. and Jang et al., 2017 -------------------

// Logistic noise on the log odds, by a temperature.
class LogitRelaxedBernoulli : public Family<LogitRelaxedBernoulli, BinaryOdds<Distribution>> {
 public:
  static constexpr const char* kName = "LogitRelaxedBernoulli";
  LogitRelaxedBernoulli(const Tensor& temperature, const OddsOptions& odds);
  const Tensor& temperature() const { return temperature_; }
  Constraint support() const override { return constraints::real(); }
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;

 private:
  Tensor temperature_;
};
class RelaxedBernoulli : public Family<RelaxedBernoulli, TransformedDistribution> {
 public:
  static constexpr const char* kName = "RelaxedBernoulli";
  RelaxedBernoulli(const Tensor& temperature, const Argument& probs, const Options& options = {})
      : RelaxedBernoulli(temperature, OddsOptions{probs, std::nullopt, options.validate_args}) {}
  RelaxedBernoulli(const Tensor& temperature, const OddsOptions& odds);
  const Tensor& temperature() const { return inner().temperature(); }
  Tensor probs() const { return inner().probs(); }
  Tensor logits() const { return inner().logits(); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::unit_interval(); }

 private:
  const LogitRelaxedBernoulli& inner() const { return static_cast<const LogitRelaxedBernoulli&>(*base_); }
};

// Gumbel noise on the logits, by a temperature.
class ExpRelaxedCategorical : public Family<ExpRelaxedCategorical, OfCategorical> {
 public:
  static constexpr const char* kName = "ExpRelaxedCategorical";
  ExpRelaxedCategorical(const Tensor& temperature, const OddsOptions& odds);
  const Tensor& temperature() const { return temperature_; }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::real_vector(); }  // more exactly, a surface in it
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;

 private:
  Tensor temperature_;
};
class RelaxedOneHotCategorical : public Family<RelaxedOneHotCategorical, TransformedDistribution> {
 public:
  static constexpr const char* kName = "RelaxedOneHotCategorical";
  RelaxedOneHotCategorical(const Tensor& temperature, const Tensor& probs, const Options& options = {})
      : RelaxedOneHotCategorical(temperature, OddsOptions{Argument(probs), std::nullopt, options.validate_args}) {}
  RelaxedOneHotCategorical(const Tensor& temperature, const OddsOptions& odds);
  const Tensor& temperature() const { return inner().temperature(); }
  Tensor probs() const { return inner().probs(); }
  Tensor logits() const { return inner().logits(); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::simplex(); }

 private:
  const ExpRelaxedCategorical& inner() const { return static_cast<const ExpRelaxedCategorical&>(*base_); }
};

}  // namespace mica::distributions
