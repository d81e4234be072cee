// Distributions made of distributions: batches taken for events, mixtures, transformed samples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mica/distributions/discrete.h"
#include "mica/distributions/transforms.h"

namespace mica::distributions {

// A distribution whose last batch dimensions belong to the event: log probabilities are summed over them.
class Independent : public Family<Independent, Distribution> {
 public:
  static constexpr const char* kName = "Independent";
  Independent(const Distribution& base_distribution, int64_t reinterpreted_batch_ndims, const Options& options = {});
  const Distribution& base_dist() const { return *base_; }
  int64_t reinterpreted_batch_ndims() const { return ndims_; }
  std::string str() const override;
  bool has_rsample() const override { return base_->has_rsample(); }
  bool has_enumerate_support() const override { return ndims_ == 0 && base_->has_enumerate_support(); }
  Constraint support() const override;
  Tensor mean() const override { return base_->mean(); }
  Tensor mode() const override { return base_->mode(); }
  Tensor variance() const override { return base_->variance(); }
  Tensor sample(IntArrayRef sample_shape = {}) const override { return base_->sample(sample_shape); }
  Tensor rsample(IntArrayRef sample_shape = {}) const override { return base_->rsample(sample_shape); }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor enumerate_support(bool expand = true) const override;

 protected:
  void widen(IntArrayRef batch_shape) override;

 private:
  DistributionPtr base_;
  int64_t ndims_;
};

// A component, chosen by a Categorical, of a batch of them along the last batch dimension.
class MixtureSameFamily : public Family<MixtureSameFamily, Distribution> {
 public:
  static constexpr const char* kName = "MixtureSameFamily";
  MixtureSameFamily(const Categorical& mixture_distribution, const Distribution& component_distribution,
                    const Options& options = {});
  const Categorical& mixture_distribution() const { return mixture_; }
  const Distribution& component_distribution() const { return *components_; }
  std::string str() const override;
  Constraint support() const override { return constraints::mixture_same_family(components_->support()); }
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;

 protected:
  void widen(IntArrayRef batch_shape) override;

 private:
  Tensor weighted(const Tensor& values) const;  // the mean of values of the components
  Tensor padded(const Tensor& x) const;
  Categorical mixture_;
  DistributionPtr components_;
};

// The distribution of samples of a base distribution after one transform or a list of them.
class TransformedDistribution : public Family<TransformedDistribution, Distribution> {
 public:
  static constexpr const char* kName = "TransformedDistribution";
  TransformedDistribution(const Distribution& base_distribution, std::vector<Transform> transforms,
                          const Options& options = {});
  TransformedDistribution(const Distribution& base_distribution, const Transform& transform,
                          const Options& options = {})
      : TransformedDistribution(base_distribution, std::vector<Transform>{transform}, options) {}
  const Distribution& base_dist() const { return *base_; }
  const std::vector<Transform>& transforms() const { return transforms_; }
  bool has_rsample() const override { return base_->has_rsample(); }
  Constraint support() const override;
  Tensor sample(IntArrayRef sample_shape = {}) const override;
  Tensor rsample(IntArrayRef sample_shape = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor cdf(const Tensor& value) const override;
  Tensor icdf(const Tensor& value) const override;

 protected:
  TransformedDistribution() = default;  // a family made by transforms calls finish_transformed
  void finish_transformed(const Distribution& base_distribution, std::vector<Transform> transforms,
                          const Options& options);
  void widen(IntArrayRef batch_shape) override;

  DistributionPtr base_;
  std::vector<Transform> transforms_;

 private:
  Tensor transformed(Tensor x) const;
  Tensor monotonized(const Tensor& value) const;
};

}  // namespace mica::distributions
