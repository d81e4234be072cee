// Distributions of vectors and matrices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mica/distributions/continuous.h"

namespace mica::distributions {

// One of the three is to be given: MultivariateNormal(loc, {.scale_tril = factor}).
struct CovarianceOptions {
  Tensor covariance_matrix = {};
  Tensor precision_matrix = {};  // its inverse
  Tensor scale_tril = {};        // its Cholesky factor
  std::optional<bool> validate_args = std::nullopt;
};

class MultivariateNormal : public Family<MultivariateNormal, Distribution> {
 public:
  static constexpr const char* kName = "MultivariateNormal";
  MultivariateNormal(const Tensor& loc, const Tensor& covariance_matrix, const Options& options = {});
  MultivariateNormal(const Tensor& loc, const CovarianceOptions& covariance);
  const Tensor& loc() const { return parameter(0); }
  Tensor covariance_matrix() const;
  Tensor precision_matrix() const;
  Tensor scale_tril() const;
  // The factor before it is broadcast to the batch of loc.
  const Tensor& unbroadcasted_scale_tril() const { return factor_; }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::real_vector(); }
  Tensor mean() const override { return loc(); }
  Tensor mode() const override { return loc(); }
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;

 private:
  Tensor widened(const Tensor& matrix) const;
  Tensor factor_;
};

// Normal vectors with covariance cov_factor @ cov_factor.T + diag(cov_diag).
class LowRankMultivariateNormal : public Family<LowRankMultivariateNormal, Distribution> {
 public:
  static constexpr const char* kName = "LowRankMultivariateNormal";
  LowRankMultivariateNormal(const Tensor& loc, const Tensor& cov_factor, const Tensor& cov_diag,
                            const Options& options = {});
  const Tensor& loc() const { return parameter(0); }
  const Tensor& cov_factor() const { return parameter(1); }
  const Tensor& cov_diag() const { return parameter(2); }
  Tensor covariance_matrix() const;
  Tensor precision_matrix() const;
  Tensor scale_tril() const;
  // The parameters as they were given, before they are broadcast to one batch; and the Cholesky factor of I + W' D^-1
  // W.
  const Tensor& unbroadcasted_cov_factor() const { return factor_; }
  const Tensor& unbroadcasted_cov_diag() const { return diag_; }
  const Tensor& capacitance_tril() const { return capacitance_; }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::real_vector(); }
  Tensor mean() const override { return loc(); }
  Tensor mode() const override { return loc(); }
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;

 private:
  Tensor widened(const Tensor& matrix) const;
  Tensor factor_, diag_, capacitance_;
};

// Positive definite matrices: sums of `df` outer products of normal vectors.
class Wishart : public Family<Wishart, ExponentialFamily> {
 public:
  static constexpr const char* kName = "Wishart";
  Wishart(const Argument& df, const Tensor& covariance_matrix, const Options& options = {});
  Wishart(const Argument& df, const CovarianceOptions& covariance);
  Tensor covariance_matrix() const;
  Tensor precision_matrix() const;
  Tensor scale_tril() const;
  const Tensor& df() const { return parameter(3); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::positive_definite(); }
  Tensor mean() const override;
  Tensor mode() const override;
  Tensor variance() const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override { return rsample(sample_shape, 10); }
  // Samples that fail the check are drawn again, at most this many times.
  Tensor rsample(IntArrayRef sample_shape, int64_t max_try_correction) const;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  std::vector<Tensor> natural_params() const override;
  Tensor log_normalizer(const std::vector<Tensor>& natural) const override;
  double mean_carrier_measure() const override { return 0; }

 protected:
  void widen(IntArrayRef batch_shape) override;

 private:
  Tensor widened(const Tensor& matrix) const;
  Tensor per_matrix(const Tensor& value) const;
  Tensor bartlett_sample(IntArrayRef sample_shape) const;
  Tensor any_of_batch(const Tensor& flags) const;
  Tensor factor_;
  std::optional<Chi2> chi2_;
};

// Cholesky factors of correlation matrices with density proportional to |C|^(concentration - 1): Lewandowski, Kurowicka
// and Joe, 2009, the onion method, by rows.
class LKJCholesky : public Family<LKJCholesky, Distribution> {
 public:
  static constexpr const char* kName = "LKJCholesky";
  explicit LKJCholesky(int64_t dim, const Argument& concentration = 1.0, const Options& options = {});
  int64_t dim() const { return dim_; }
  const Tensor& concentration() const { return parameter(0); }
  Constraint support() const override { return constraints::corr_cholesky(); }
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;

 protected:
  void widen(IntArrayRef batch_shape) override;

 private:
  int64_t dim_;
  std::optional<Beta> beta_;  // the squared length of each row left of the diagonal
};

}  // namespace mica::distributions
