// Distributions of single real numbers, and Dirichlet's of their shares.
#pragma once

#include <utility>
#include <vector>

#include "mica/distributions/distribution.h"

namespace mica::distributions {

class Normal : public Family<Normal, ExponentialFamily> {
 public:
  static constexpr const char* kName = "Normal";
  Normal(const Argument& loc, const Argument& scale, const Options& options = {});
  const Tensor& loc() const { return parameter(0); }
  const Tensor& scale() const { return parameter(1); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::real(); }
  Tensor mean() const override { return loc(); }
  Tensor mode() const override { return loc(); }
  Tensor stddev() const override { return scale(); }
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& value) const override;
  Tensor entropy() const override;
  std::vector<Tensor> natural_params() const override;
  Tensor log_normalizer(const std::vector<Tensor>& natural) const override;
  double mean_carrier_measure() const override { return 0; }
};

// Given by a median and a half width at half maximum. It has no mean.
class Cauchy : public Family<Cauchy, Distribution> {
 public:
  static constexpr const char* kName = "Cauchy";
  Cauchy(const Argument& loc, const Argument& scale, const Options& options = {});
  const Tensor& loc() const { return parameter(0); }
  const Tensor& scale() const { return parameter(1); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::real(); }
  Tensor mean() const override;
  Tensor mode() const override { return loc(); }
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& value) const override;
  Tensor entropy() const override;
};

class Laplace : public Family<Laplace, Distribution> {
 public:
  static constexpr const char* kName = "Laplace";
  Laplace(const Argument& loc, const Argument& scale, const Options& options = {});
  const Tensor& loc() const { return parameter(0); }
  const Tensor& scale() const { return parameter(1); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::real(); }
  Tensor mean() const override { return loc(); }
  Tensor mode() const override { return loc(); }
  Tensor stddev() const override;
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& value) const override;
  Tensor entropy() const override;
};

class Uniform : public Family<Uniform, Distribution> {  // on [low, high)
 public:
  static constexpr const char* kName = "Uniform";
  Uniform(const Argument& low, const Argument& high, const Options& options = {});
  const Tensor& low() const { return parameter(0); }
  const Tensor& high() const { return parameter(1); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::interval(low(), high()); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor stddev() const override;
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& value) const override;
  Tensor entropy() const override;
};

// The excess over a high threshold `loc`; exponential where the concentration is zero.
class GeneralizedPareto : public Family<GeneralizedPareto, Distribution> {
 public:
  static constexpr const char* kName = "GeneralizedPareto";
  GeneralizedPareto(const Argument& loc, const Argument& scale, const Argument& concentration,
                    const Options& options = {});
  const Tensor& loc() const { return parameter(0); }
  const Tensor& scale() const { return parameter(1); }
  const Tensor& concentration() const { return parameter(2); }
  bool has_rsample() const override { return true; }
  Constraint support() const override;
  Tensor mean() const override;
  Tensor mode() const override { return loc(); }
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor log_survival_function(const Tensor& value) const;
  Tensor log_cdf(const Tensor& value) const;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& value) const override;
  Tensor entropy() const override;

 private:
  // Where the concentration is zero, and the concentration with ones there.
  std::pair<Tensor, Tensor> shape_or_one() const;
};

class VonMises : public Family<VonMises, Distribution> {  // angles; mean and variance are the circular ones
 public:
  static constexpr const char* kName = "VonMises";
  VonMises(const Argument& loc, const Argument& concentration, const Options& options = {});
  const Tensor& loc() const { return parameter(0); }
  const Tensor& concentration() const { return parameter(1); }
  Constraint support() const override { return constraints::real(); }
  Tensor mean() const override { return loc(); }
  Tensor mode() const override { return loc(); }
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
};

class Exponential : public Family<Exponential, ExponentialFamily> {
 public:
  static constexpr const char* kName = "Exponential";
  explicit Exponential(const Argument& rate, const Options& options = {});
  const Tensor& rate() const { return parameter(0); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::nonnegative(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor stddev() const override;
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& value) const override;
  Tensor entropy() const override;
  std::vector<Tensor> natural_params() const override;
  Tensor log_normalizer(const std::vector<Tensor>& natural) const override;
  double mean_carrier_measure() const override { return 0; }
};

class Gamma : public Family<Gamma, ExponentialFamily> {
 public:
  static constexpr const char* kName = "Gamma";
  Gamma(const Argument& concentration, const Argument& rate, const Options& options = {});
  const Tensor& concentration() const { return parameter(0); }
  const Tensor& rate() const { return parameter(1); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::nonnegative(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor entropy() const override;
  std::vector<Tensor> natural_params() const override;
  Tensor log_normalizer(const std::vector<Tensor>& natural) const override;
  double mean_carrier_measure() const override { return 0; }

 protected:
  Gamma() = default;  // for subclasses, which add the parameters as hidden ones
};

class Chi2 : public Family<Chi2, Gamma> {
 public:
  static constexpr const char* kName = "Chi2";
  explicit Chi2(const Argument& df, const Options& options = {});
  const Tensor& df() const { return parameter(2); }
};

class Dirichlet : public Family<Dirichlet, ExponentialFamily> {  // points of the simplex along the last dimension
 public:
  static constexpr const char* kName = "Dirichlet";
  explicit Dirichlet(const Tensor& concentration, const Options& options = {});
  const Tensor& concentration() const { return parameter(0); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::simplex(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  std::vector<Tensor> natural_params() const override;
  Tensor log_normalizer(const std::vector<Tensor>& natural) const override;
};

class Beta : public Family<Beta, ExponentialFamily> {  // the first share of a Dirichlet distribution of two
 public:
  static constexpr const char* kName = "Beta";
  Beta(const Argument& concentration1, const Argument& concentration0, const Options& options = {});
  const Tensor& concentration1() const { return parameter(0); }
  const Tensor& concentration0() const { return parameter(1); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::unit_interval(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  std::vector<Tensor> natural_params() const override;
  Tensor log_normalizer(const std::vector<Tensor>& natural) const override;

 protected:
  void widen(IntArrayRef batch_shape) override;

 private:
  Dirichlet dirichlet_;
};

// The ratio of two chi-squared numbers, each by its degrees of freedom.
class FisherSnedecor : public Family<FisherSnedecor, Distribution> {
 public:
  static constexpr const char* kName = "FisherSnedecor";
  FisherSnedecor(const Argument& df1, const Argument& df2, const Options& options = {});
  const Tensor& df1() const { return parameter(0); }
  const Tensor& df2() const { return parameter(1); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::positive(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
};

class StudentT : public Family<StudentT, Distribution> {
 public:
  static constexpr const char* kName = "StudentT";
  explicit StudentT(const Argument& df, const Argument& loc = 0.0, const Argument& scale = 1.0,
                    const Options& options = {});
  const Tensor& df() const { return parameter(0); }
  const Tensor& loc() const { return parameter(1); }
  const Tensor& scale() const { return parameter(2); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::real(); }
  Tensor mean() const override;
  Tensor mode() const override { return loc(); }
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
};

}  // namespace mica::distributions
