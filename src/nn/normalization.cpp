#include "mica/nn/normalization.h"

#include "mica/layers.h"
#include "nn/text.h"

namespace mica::nn {

ChannelNorm::ChannelNorm(int64_t num_features, const BatchNormOptions& o)
    : num_features(num_features),
      eps(o.eps),
      momentum(o.momentum),
      affine(o.affine),
      track_running_stats(o.track_running_stats),
      weight(register_parameter("weight", affine ? ones({num_features}) : Tensor())),
      bias(register_parameter("bias", affine && o.bias ? zeros({num_features}) : Tensor())),
      running_mean(register_buffer("running_mean", track_running_stats ? zeros({num_features}) : Tensor())),
      running_var(register_buffer("running_var", track_running_stats ? ones({num_features}) : Tensor())),
      num_batches_tracked(register_buffer("num_batches_tracked",
                                          track_running_stats ? zeros({}, TensorOptions(DType::Int64)) : Tensor())) {}

ChannelNorm::ChannelNorm(Lazy, const BatchNormOptions& o)
    : num_features(0), eps(o.eps), momentum(o.momentum), affine(o.affine), track_running_stats(o.track_running_stats) {
  const auto parameter = [&](const char* name, bool wanted) {
    return wanted ? register_uninitialized_parameter(name) : register_parameter(name, {});
  };
  const auto buffer = [&](const char* name) {
    return track_running_stats ? register_uninitialized_buffer(name) : register_buffer(name, {});
  };
  weight = parameter("weight", affine);
  bias = parameter("bias", affine && o.bias);
  running_mean = buffer("running_mean");
  running_var = buffer("running_var");
  num_batches_tracked =
      register_buffer("num_batches_tracked", track_running_stats ? zeros({}, TensorOptions(DType::Int64)) : Tensor());
}
void ChannelNorm::take_input(const Tensor& x) {
  if (num_features != 0) return;
  const int64_t channels = x.size(1);
  num_features = channels;
  for (const Tensor& member : {weight, bias, running_mean, running_var}) materialize(member, {channels});
  reset_parameters();
}
void ChannelNorm::members_replaced() {
  const Tensor& member = affine ? weight : running_mean;
  if (num_features == 0 && member.defined()) num_features = member.numel();
}
// Files from before num_batches_tracked existed do not have it.
void ChannelNorm::prepare_load(NamedTensors& state, const std::string& prefix) {
  if (!track_running_stats) return;
  const std::string name = prefix + "num_batches_tracked";
  for (const auto& [known, tensor] : state)
    if (known == name) return;
  state.emplace_back(name,
                     num_batches_tracked.is_meta() ? zeros({}, TensorOptions(DType::Int64)) : num_batches_tracked);
}

void ChannelNorm::reset_running_stats() {
  if (!track_running_stats) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}
void ChannelNorm::reset_parameters() {
  reset_running_stats();
  if (!affine) return;
  init_ones_(weight);
  if (bias.defined()) init_zeros_(bias);
}
std::string ChannelNorm::extra_repr() const {
  return cat(num_features, ", eps=", eps, ", momentum=", or_none(momentum), ", affine=", affine,
             ", bias=", bias.defined(), ", track_running_stats=", track_running_stats);
}

Tensor ChannelNorm::normalize_batch(const Tensor& x) {
  double factor = momentum.value_or(0);
  const bool counts = is_training() && track_running_stats;
  if (counts && !momentum) factor = 1.0 / static_cast<double>(num_batches_tracked.item<int64_t>() + 1);
  const bool uses_batch = is_training() || !track_running_stats;
  Tensor y = functional_batch_norm(x, running_mean, running_var, weight, bias, uses_batch, factor, eps);
  if (counts) num_batches_tracked.add_(1);  // counted last, when nothing can fail any more
  return y;
}
Tensor ChannelNorm::normalize_instances(const Tensor& x) {
  return functional_instance_norm(x, running_mean, running_var, weight, bias, is_training() || !track_running_stats,
                                  momentum.value_or(0), eps);
}

static void check_dims(const Tensor& x, std::initializer_list<int64_t> allowed) {
  for (const int64_t dims : allowed)
    if (x.dim() == dims) return;
  const int64_t first = *allowed.begin(), last = *(allowed.end() - 1);
  fail(ErrorKind::Value,
       cat("expected ", first, "D", first == last ? "" : cat(" or ", last, "D"), " input (got ", x.dim(), "D input)"));
}

#define MICA_CHANNEL_NORM_FORWARD(Name, function, ...) \
  Tensor Name##Impl::forward(const Tensor& x) {        \
    check_dims(x, {__VA_ARGS__});                      \
    return function(x);                                \
  }
MICA_CHANNEL_NORM_FORWARD(BatchNorm1d, normalize_batch, 2, 3)
MICA_CHANNEL_NORM_FORWARD(BatchNorm2d, normalize_batch, 4)
MICA_CHANNEL_NORM_FORWARD(BatchNorm3d, normalize_batch, 5)
#undef MICA_CHANNEL_NORM_FORWARD

// Whether an instance comes without a batch.
static bool lacks_batch(const Tensor& x, int64_t dims) {
  check_dims(x, {dims - 1, dims});
  return x.dim() == dims - 1;
}
#define MICA_INSTANCE_NORM_FORWARD(Name, dims)                                       \
  Tensor Name##Impl::forward(const Tensor& x) {                                      \
    if (lacks_batch(x, dims)) return normalize_instances(x.unsqueeze(0)).squeeze(0); \
    return normalize_instances(x);                                                   \
  }
MICA_INSTANCE_NORM_FORWARD(InstanceNorm1d, 3)
MICA_INSTANCE_NORM_FORWARD(InstanceNorm2d, 4)
MICA_INSTANCE_NORM_FORWARD(InstanceNorm3d, 5)
#undef MICA_INSTANCE_NORM_FORWARD

GroupNormImpl::GroupNormImpl(int64_t num_groups, int64_t num_channels, Options o)
    : num_groups(num_groups),
      num_channels(num_channels),
      eps(o.eps),
      weight(register_parameter("weight", o.affine ? ones({num_channels}) : Tensor())),
      bias(register_parameter("bias", o.affine && o.bias ? zeros({num_channels}) : Tensor())) {
  MICA_CHECK_KIND(num_groups > 0 && num_channels % num_groups == 0, Value, "num_channels (", num_channels,
                  ") must be divisible by num_groups (", num_groups, ")");
}
Tensor GroupNormImpl::forward(const Tensor& x) { return group_norm(x, num_groups, weight, bias, eps); }
std::string GroupNormImpl::extra_repr() const {
  return cat(num_groups, ", ", num_channels, ", eps=", eps, ", affine=", weight.defined(), ", bias=", bias.defined());
}

LayerNormImpl::LayerNormImpl(const Dims& shape, Options o)
    : normalized_shape(shape.sizes()),
      eps(o.eps),
      weight(register_parameter("weight", o.elementwise_affine ? ones(normalized_shape) : Tensor())),
      bias(register_parameter("bias", o.elementwise_affine && o.bias ? zeros(normalized_shape) : Tensor())) {}
Tensor LayerNormImpl::forward(const Tensor& x) { return layer_norm(x, normalized_shape, weight, bias, eps); }
std::string LayerNormImpl::extra_repr() const {
  return cat(tuple_text(normalized_shape), ", eps=", eps, ", elementwise_affine=", weight.defined(),
             ", bias=", bias.defined());
}

RMSNormImpl::RMSNormImpl(const Dims& shape, Options o)
    : normalized_shape(shape.sizes()),
      eps(o.eps),
      weight(register_parameter("weight", o.elementwise_affine ? ones(normalized_shape) : Tensor())) {}
Tensor RMSNormImpl::forward(const Tensor& x) { return rms_norm(x, normalized_shape, weight, eps); }
std::string RMSNormImpl::extra_repr() const {
  return cat(tuple_text(normalized_shape), ", eps=", or_none(eps), ", elementwise_affine=", weight.defined());
}

Tensor LocalResponseNormImpl::forward(const Tensor& x) { return local_response_norm(x, size, alpha, beta, k); }
Tensor CrossMapLRN2dImpl::forward(const Tensor& x) { return std::get<0>(_cross_map_lrn2d(x, size, alpha, beta, k)); }

}  // namespace mica::nn
