// Distributions of outcomes and counts. Where one is given by probabilities or by logits, the other is computed when
// asked for: Bernoulli(0.3), Bernoulli({.logits = x}).
#pragma once

#include <vector>

#include "mica/distributions/distribution.h"

namespace mica::distributions {

// What distributions over two outcomes share; Base is Distribution or ExponentialFamily.
template <class Base>
class BinaryOdds : public Base {
 public:
  static constexpr int kDepth = Base::kDepth;
  Tensor probs() const {
    return this->computed(place_, [this] { return odds_probs(logits()); });
  }
  Tensor logits() const {
    return this->computed(place_ + 1, [this] { return probs_to_logits(probs(), true); });
  }
  IntArrayRef param_shape() const { return given().sizes(); }

 protected:
  // Adds `probs` and `logits` as parameters, at `place` among the others.
  void add_odds(const OddsOptions& odds, const Tensor& value, const Constraint& of_probs, size_t place = 0) {
    place_ = place;
    if (odds.probs) {
      this->add("probs", of_probs, value);
      this->add_computed("logits", constraints::real());
    } else {
      this->add_computed("probs", of_probs);
      this->add("logits", constraints::real(), value);
    }
  }
  bool of_probs() const { return this->parameter(place_).defined(); }
  const Tensor& given() const { return this->parameter(of_probs() ? place_ : place_ + 1); }
  virtual Tensor odds_probs(const Tensor& logits) const { return logits_to_probs(logits, true); }

 private:
  size_t place_ = 0;
};

class Bernoulli : public Family<Bernoulli, BinaryOdds<ExponentialFamily>> {
 public:
  static constexpr const char* kName = "Bernoulli";
  explicit Bernoulli(const Argument& probs, const Options& options = {});
  explicit Bernoulli(const OddsOptions& odds);
  bool has_enumerate_support() const override { return true; }
  Constraint support() const override { return constraints::boolean(); }
  Tensor mean() const override { return probs(); }
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor enumerate_support(bool expand = true) const override;
  std::vector<Tensor> natural_params() const override;
  Tensor log_normalizer(const std::vector<Tensor>& natural) const override;
  double mean_carrier_measure() const override { return 0; }
};

// Numbers in [0, 1] with density proportional to p^x (1 - p)^(1 - x). Where `probs` lies between the two limits, the
// exact formulas would divide zero by zero; Taylor series are used there.
class ContinuousBernoulli : public Family<ContinuousBernoulli, BinaryOdds<ExponentialFamily>> {
 public:
  static constexpr const char* kName = "ContinuousBernoulli";
  struct Limits {
    double low = 0.499, high = 0.501;
  };
  explicit ContinuousBernoulli(const Argument& probs, const Options& options = {});
  explicit ContinuousBernoulli(const OddsOptions& odds);
  ContinuousBernoulli(const OddsOptions& odds, Limits limits);
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::unit_interval(); }
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& value) const override;
  Tensor entropy() const override;
  std::vector<Tensor> natural_params() const override;
  Tensor log_normalizer(const std::vector<Tensor>& natural) const override;
  double mean_carrier_measure() const override { return 0; }
  Tensor log_norm() const;  // the logarithm of the normalizer

 protected:
  Tensor odds_probs(const Tensor& logits) const override { return clamp_probs(logits_to_probs(logits, true)); }

 private:
  Tensor outside_unstable_region() const;
  Tensor cut_probs() const;
  Limits limits_;
};

class Geometric : public Family<Geometric, BinaryOdds<Distribution>> {  // failures before the first success
 public:
  static constexpr const char* kName = "Geometric";
  explicit Geometric(const Argument& probs, const Options& options = {});
  explicit Geometric(const OddsOptions& odds);
  Constraint support() const override { return constraints::nonnegative_integer(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
};

class Binomial : public Family<Binomial, BinaryOdds<Distribution>> {  // successes among total_count trials
 public:
  static constexpr const char* kName = "Binomial";
  Binomial(const Argument& total_count, const Argument& probs, const Options& options = {});
  Binomial(const Argument& total_count, const OddsOptions& odds);
  const Tensor& total_count() const { return parameter(0); }
  bool has_enumerate_support() const override { return true; }
  Constraint support() const override { return constraints::integer_interval(0, total_count()); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor enumerate_support(bool expand = true) const override;

 private:
  int64_t common_count(const char* method) const;
};

// Successes, each of probability `probs`, before total_count failures.
class NegativeBinomial : public Family<NegativeBinomial, BinaryOdds<Distribution>> {
 public:
  static constexpr const char* kName = "NegativeBinomial";
  NegativeBinomial(const Argument& total_count, const Argument& probs, const Options& options = {});
  NegativeBinomial(const Argument& total_count, const OddsOptions& odds);
  const Tensor& total_count() const { return parameter(0); }
  Constraint support() const override { return constraints::nonnegative_integer(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
};

class Poisson : public Family<Poisson, ExponentialFamily> {
 public:
  static constexpr const char* kName = "Poisson";
  explicit Poisson(const Argument& rate, const Options& options = {});
  const Tensor& rate() const { return parameter(0); }
  Constraint support() const override { return constraints::nonnegative_integer(); }
  Tensor mean() const override { return rate(); }
  Tensor mode() const override;
  Tensor variance() const override { return rate(); }
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  std::vector<Tensor> natural_params() const override;
  Tensor log_normalizer(const std::vector<Tensor>& natural) const override;
};

// One of the categories 0 ... n - 1, whose weights lie along the last dimension of `probs` or `logits`.
class Categorical : public Family<Categorical, Distribution> {
 public:
  static constexpr const char* kName = "Categorical";
  explicit Categorical(const Tensor& probs, const Options& options = {});
  explicit Categorical(const OddsOptions& odds);
  Tensor probs() const;   // normalised
  Tensor logits() const;  // normalised
  IntArrayRef param_shape() const { return given().sizes(); }
  int64_t num_events() const { return given().size(-1); }
  bool has_enumerate_support() const override { return true; }
  Constraint support() const override { return constraints::integer_interval(0, num_events() - 1); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor enumerate_support(bool expand = true) const override;

 private:
  const Tensor& given() const { return parameter(0).defined() ? parameter(0) : parameter(1); }
};

// The base of distributions that stand on a Categorical: it holds their parameters.
class OfCategorical : public Distribution {
 public:
  static constexpr int kDepth = Distribution::kDepth;
  Tensor probs() const { return categorical_.probs(); }
  Tensor logits() const { return categorical_.logits(); }
  IntArrayRef param_shape() const { return categorical_.param_shape(); }
  const Categorical& categorical() const { return categorical_; }

 protected:
  explicit OfCategorical(const OddsOptions& odds) : categorical_({odds.probs, odds.logits, std::nullopt}) {}
  void finish_categorical(std::optional<bool> validate_args);
  void widen(IntArrayRef batch_shape) override;

 private:
  Categorical categorical_;
};

class OneHotCategorical : public Family<OneHotCategorical, OfCategorical> {
 public:
  static constexpr const char* kName = "OneHotCategorical";
  explicit OneHotCategorical(const Tensor& probs, const Options& options = {});
  explicit OneHotCategorical(const OddsOptions& odds);
  bool has_enumerate_support() const override { return true; }
  Constraint support() const override { return constraints::one_hot(); }
  Tensor mean() const override { return probs(); }
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override { return categorical().entropy(); }
  Tensor enumerate_support(bool expand = true) const override;
};

// One-hot samples with the gradient of the probabilities.
class OneHotCategoricalStraightThrough : public Family<OneHotCategoricalStraightThrough, OneHotCategorical> {
 public:
  static constexpr const char* kName = "OneHotCategoricalStraightThrough";
  explicit OneHotCategoricalStraightThrough(const Tensor& probs, const Options& options = {})
      : Family(probs, options) {}
  explicit OneHotCategoricalStraightThrough(const OddsOptions& odds) : Family(odds) {}
  bool has_rsample() const override { return true; }
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
};

class Multinomial : public Family<Multinomial, OfCategorical> {  // how often each category came up in total_count draws
 public:
  static constexpr const char* kName = "Multinomial";
  Multinomial(int64_t total_count, const Tensor& probs, const Options& options = {});
  Multinomial(int64_t total_count, const OddsOptions& odds);
  int64_t total_count() const { return total_count_; }
  Constraint support() const override { return constraints::multinomial(total_count_); }
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;

 private:
  int64_t total_count_;
  Binomial binomial_;  // the distribution of each category's count, for the entropy
};

}  // namespace mica::distributions
