#include "core/geometry.h"
#include "core/out.h"
#include "mica/autograd.h"
#include "mica/generated/layers/normalization.h"
#include "mica/generated/layers/normalization_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

// Refuses a batch of one value per channel: it has no spread to normalise by.
void check_several_values(IntArrayRef sizes) {
  int64_t values = sizes[0];
  for (size_t d = 2; d < sizes.size(); ++d) values *= sizes[d];
  MICA_CHECK_KIND(values != 1, Value,
                  "Expected more than 1 value per channel when training, got input size torch.Size(", sizes, ")");
}

void check_several_places(IntArrayRef sizes) {
  int64_t places = 1;
  for (size_t d = 2; d < sizes.size(); ++d) places *= sizes[d];
  MICA_CHECK_KIND(places != 1, Value, "Expected more than 1 spatial element when training, got input size torch.Size(",
                  sizes, ")");
}

// torch returns an empty list, which has no channels, unchanged.
bool is_nothing(const Tensor& input) { return input.dim() == 1 && input.numel() == 0; }

// Torch returns statistics in the dtype of the parameters, or of the input where there are none.
std::tuple<Tensor, Tensor, Tensor> with_statistics_of(const Tensor& input, const Tensor& weight,
                                                      std::tuple<Tensor, Tensor, Tensor> results) {
  const DType dtype = weight.defined() ? weight.dtype() : input.dtype();
  auto& [result, mean, rstd] = results;
  return {std::move(result), mean.to(dtype), rstd.to(dtype)};
}

Tensor repeated(const Tensor& t, int64_t times) { return t.defined() ? t.repeat({times}) : t; }

}  // namespace

std::tuple<Tensor, Tensor, Tensor> native_batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                     const Tensor& running_mean, const Tensor& running_var,
                                                     bool training, double momentum, double eps) {
  if (!training && is_nothing(input)) return {input.clone(), zeros({0}, input.options()), zeros({0}, input.options())};
  if (training && input.dim() > 1)
    MICA_CHECK(input.numel() > 0, "input tensor must have at least one element, but got input_sizes = ", input.sizes());
  return with_statistics_of(
      input, weight,
      mica::_batch_norm_statistics(input, weight, bias, running_mean, running_var, training, momentum, eps));
}

std::tuple<Tensor, Tensor, Tensor> native_group_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                     int64_t N, int64_t C, int64_t HxW, int64_t group, double eps) {
  return with_statistics_of(input, weight, mica::_group_norm_statistics(input, weight, bias, N, C, HxW, group, eps));
}

Tensor batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum, double eps, bool) {
  if (is_nothing(input)) return input.clone();
  return std::get<0>(
      mica::_batch_norm_statistics(input, weight, bias, running_mean, running_var, training, momentum, eps));
}

Tensor functional_batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                             const Tensor& weight, const Tensor& bias, bool training, double momentum, double eps) {
  if (training && input.dim() > 0) check_several_values(input.sizes());
  MICA_CHECK_KIND(!training || eps > 0, Value, "batch_norm eps must be positive during training, but got ", eps);
  MICA_CHECK_KIND(eps >= 0, Value, "batch_norm eps must be non-negative, but got ", eps);
  if (is_nothing(input)) return input.clone();
  return std::get<0>(
      mica::_batch_norm_statistics(input, weight, bias, running_mean, running_var, training, momentum, eps));
}

Tensor group_norm(const Tensor& input, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps, bool) {
  MICA_CHECK(input.dim() >= 2, "Expected at least 2 dimensions for input tensor but received ", input.dim());
  int64_t inner = 1;
  for (int64_t d = 2; d < input.dim(); ++d) inner *= input.size(d);
  return std::get<0>(
      mica::_group_norm_statistics(input, weight, bias, input.size(0), input.size(1), inner, num_groups, eps));
}

Tensor functional_group_norm(const Tensor& input, int64_t num_groups, const Tensor& weight, const Tensor& bias,
                             double eps) {
  MICA_CHECK(input.dim() >= 2, "Expected at least 2 dimensions for input tensor but received ", input.dim());
  MICA_CHECK(num_groups > 0, "Expected num groups to be greater than 0, got ", num_groups);
  DimVector sizes(input.sizes());
  sizes[0] = input.size(0) * input.size(1) / num_groups;
  sizes[1] = num_groups;
  int64_t values = sizes[0];
  for (size_t d = 2; d < sizes.size(); ++d) values *= sizes[d];
  MICA_CHECK_KIND(values != 1, Value, "Expected more than 1 value per channel when training, got input size ",
                  sizes.ref());
  return mica::group_norm(input, num_groups, weight, bias, eps);
}

Tensor instance_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                     const Tensor& running_var, bool use_input_stats, double momentum, double eps, bool) {
  MICA_CHECK(use_input_stats || (running_mean.defined() && running_var.defined()),
             "Expected running_mean and running_var to be defined when use_input_stats is false");
  MICA_CHECK_KIND(running_mean.defined() == running_var.defined(), Value,
                  "running_mean and running_var must either both be None or neither be None");
  MICA_CHECK_KIND(input.dim() >= 2, Index, "Dimension out of range (expected to be in range of [", -input.dim(), ", ",
                  input.dim() - 1, "], but got 1): instance_norm() needs a batch and a channel dimension");
  const int64_t batch = input.size(0), channels = input.size(1);
  for (const auto& [name, t] : {std::pair<const char*, const Tensor&>{"weight", weight},
                                {"bias", bias},
                                {"running_mean", running_mean},
                                {"running_var", running_var}})
    MICA_CHECK(!t.defined() || t.numel() == channels, name, " should contain ", channels * batch, " elements not ",
               t.defined() ? t.numel() * batch : 0);
  // Every channel of every sample is a group of its own. Results are contiguous, whatever the input's layout.
  if (use_input_stats && !running_mean.defined())
    return mica::group_norm(input.contiguous(), std::max<int64_t>(channels, 1), weight, bias, eps);
  if (use_input_stats)  // checked before the first of them is written
    for (const Tensor& t : {running_mean, running_var}) check_no_internal_overlap("instance_norm", t);
  // Otherwise the channels of all samples stand side by side in a batch of one, and its running statistics are
  // averaged.
  DimVector sizes(input.sizes());
  sizes[0] = 1;
  sizes[1] = batch * channels;
  MICA_CHECK(running_mean.dtype() == running_var.dtype(), "expected scalar type ", info(running_mean.dtype()).legacy,
             " but found ", info(running_var.dtype()).legacy, ": running_mean and running_var must share a dtype");
  // Statistics of another dtype are converted for the kernel and keep their dtype. Those of 16-bit floats are float32
  // anyway.
  const bool converts = input.dtype() == DType::Float32 || input.dtype() == DType::Float64;
  const DType kept = converts ? input.dtype() : running_mean.dtype();
  const Tensor mean = repeated(running_mean, batch).to(kept), var = repeated(running_var, batch).to(kept);
  const Tensor result =
      std::get<0>(mica::_batch_norm_statistics(input.contiguous().view(sizes), repeated(weight, batch),
                                               repeated(bias, batch), mean, var, use_input_stats, momentum, eps));
  if (use_input_stats && batch > 0) {
    NoGradGuard unrecorded;
    running_mean.copy_(mica::mean(mean.view({batch, channels}), 0));
    running_var.copy_(mica::mean(var.view({batch, channels}), 0));
  }
  return result.view(input.sizes());
}

Tensor functional_instance_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                                const Tensor& weight, const Tensor& bias, bool use_input_stats, double momentum,
                                double eps) {
  if (use_input_stats) check_several_places(input.sizes());
  return mica::instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, false);
}

}  // namespace mica::composite
