// Layers that bring values to mean zero and variance one: over a batch, a group of channels, an instance or a row.
#pragma once

#include "mica/generated/nn/normalization.h"

namespace mica::nn {

// Channels with running statistics, and a scale and a shift for each.
class ChannelNorm : public Module {
 public:
  void reset_running_stats();
  void reset_parameters();
  std::string extra_repr() const override;

  int64_t num_features;  // 0 until the first input decides it
  const double eps;
  const std::optional<double> momentum;
  const bool affine, track_running_stats;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  ChannelNorm(int64_t num_features, const BatchNormOptions& options);
  ChannelNorm(Lazy, const BatchNormOptions& options);
  void take_input(const Tensor& x);
  void prepare_load(NamedTensors& state, const std::string& prefix) override;
  void members_replaced() override;
  Tensor normalize_batch(const Tensor& x);
  Tensor normalize_instances(const Tensor& x);
};

#define MICA_CHANNEL_NORM(Name, OptionsType)                                                         \
  class Name##Impl : public ChannelNorm {                                                            \
   public:                                                                                           \
    using Options = OptionsType;                                                                     \
    explicit Name##Impl(int64_t num_features, Options o = {})                                        \
        : ChannelNorm(num_features, {o.eps, o.momentum, o.affine, o.track_running_stats, o.bias}) {} \
    Tensor forward(const Tensor& x);                                                                 \
                                                                                                     \
   protected:                                                                                        \
    Name##Impl(Lazy lazy, const Options& o)                                                          \
        : ChannelNorm(lazy, {o.eps, o.momentum, o.affine, o.track_running_stats, o.bias}) {}         \
  };                                                                                                 \
  MICA_MODULE(Name);
MICA_CHANNEL_NORM(BatchNorm1d, BatchNormOptions)
MICA_CHANNEL_NORM(BatchNorm2d, BatchNormOptions)
MICA_CHANNEL_NORM(BatchNorm3d, BatchNormOptions)
MICA_CHANNEL_NORM(InstanceNorm1d, InstanceNormOptions)
MICA_CHANNEL_NORM(InstanceNorm2d, InstanceNormOptions)
MICA_CHANNEL_NORM(InstanceNorm3d, InstanceNormOptions)
#undef MICA_CHANNEL_NORM

class GroupNormImpl : public Module {
 public:
  using Options = GroupNormOptions;
  GroupNormImpl(int64_t num_groups, int64_t num_channels, Options options = {});
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;

  const int64_t num_groups, num_channels;
  const double eps;
  Tensor weight, bias;
};
MICA_MODULE(GroupNorm);

class LayerNormImpl : public Module {
 public:
  using Options = LayerNormOptions;
  explicit LayerNormImpl(const Dims& normalized_shape, Options options = {});
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;

  const DimVector normalized_shape;
  const double eps;
  Tensor weight, bias;
};
MICA_MODULE(LayerNorm);

class RMSNormImpl : public Module {
 public:
  using Options = RMSNormOptions;
  explicit RMSNormImpl(const Dims& normalized_shape, Options options = {});
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;

  const DimVector normalized_shape;
  const std::optional<double> eps;
  Tensor weight;
};
MICA_MODULE(RMSNorm);

// Divides each element by a power of the mean square of its neighbours in `size` channels.
#define MICA_RESPONSE_NORM(Name)               \
  class Name##Impl : public ResponseNormBase { \
   public:                                     \
    using ResponseNormBase::ResponseNormBase;  \
    Tensor forward(const Tensor& x);           \
  };                                           \
  MICA_MODULE(Name);
MICA_RESPONSE_NORM(LocalResponseNorm)
MICA_RESPONSE_NORM(CrossMapLRN2d)  // of images, with the window counted as
                                   // torch's older layer does
#undef MICA_RESPONSE_NORM

}  // namespace mica::nn
