#include "core/kernel_arguments.h"
#include "shapes/normalization.h"

#include <algorithm>

#include "core/geometry.h"
#include "core/recorded_batch_norm.h"
#include "core/recorded_rows.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/normalization_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"

namespace mica::shapes {

namespace {

Tensor dense(const Tensor& t) { return t.defined() ? t.contiguous() : t; }

// Checks that parameters have the input's dtype, or all float32 beside an input of 16-bit floats.
void check_parameter_dtypes(const Tensor& input, std::initializer_list<const Tensor*> parameters) {
  DType common = DType::Undefined;
  for (const Tensor* p : parameters) {
    if (!p->defined()) continue;
    if (p->dtype() != input.dtype()) {
      MICA_CHECK(is_narrow(input.dtype()) || input.dtype() == DType::Float32,
                 "mixed dtype (CPU): all inputs must share same datatype. Got ", p->dtype(), " beside an input of ",
                 input.dtype());
      MICA_CHECK(is_narrow(input.dtype()) && p->dtype() == DType::Float32,
                 "mixed dtype (CPU): expect parameter to have scalar type of Float, but got ", p->dtype());
    }
    MICA_CHECK(common == DType::Undefined || common == p->dtype(), "expected scalar type ", info(common).legacy,
               " but found ", info(p->dtype()).legacy, ": the parameters and statistics must share a dtype");
    common = p->dtype();
  }
}

DType statistics_dtype(const Tensor& input) {
  return input.dtype() == DType::Float64 ? DType::Float64 : DType::Float32;
}

void check_channel_parameter(const char* name, const Tensor& t, int64_t channels) {
  MICA_CHECK(!t.defined() || t.numel() == channels, name, " should contain ", channels, " elements not ", t.numel());
}

// Statistics that a kernel changes: the tensor itself where it is contiguous, otherwise a copy that is written back.
class InPlace {
 public:
  explicit InPlace(const Tensor& t) : given_(t), dense_(dense(t)) {}
  TensorView view() const { return view_or_none(dense_); }
  void finish() const {
    if (given_.defined() && !given_.is_same(dense_)) given_.copy_(dense_);
  }

 private:
  const Tensor& given_;
  Tensor dense_;
};

}  // namespace

ChannelLayout::ChannelLayout(const Tensor& input) : channels(input.size(1)) {
  format = input.suggest_memory_format();
  const bool last = format != MemoryFormat::Contiguous;
  int64_t places = 1;
  for (int64_t d = 2; d < input.dim(); ++d) places *= input.size(d);
  outer = last ? input.size(0) * places : input.size(0);
  inner = last ? 1 : places;
  strides = memory_format_strides(input.sizes(), format);
}

Tensor ChannelLayout::of(const Tensor& t) const {
  const Tensor ordered = t.contiguous(format);
  if (format == MemoryFormat::Contiguous) return ordered.view({outer, channels, inner});
  return ordered.movedim(1, -1).view({outer, channels, inner});
}

namespace {

// In evaluation each channel of each example is computed by itself, so a compiled function can put the call off. `x`
// and `y` are (outer, channels, inner), in the order of memory.
bool put_off_evaluation(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                        const Tensor& var, double eps) {
  if (!(thread_modes & mode_bit::kRecord) || !x.is_cpu() || x.size(2) == 1) return false;
  Tensor parameters[4];
  const Tensor* given[] = {&weight, &bias, &mean, &var};
  for (int i = 0; i < 4; ++i) {
    if (!given[i]->defined() || !given[i]->is_contiguous()) return false;
    parameters[i] = given[i]->expand({x.size(0), x.size(1)});
  }
  const recording::RecordedBatchNorm body{MICA_LAYER_KERNEL(kCPU, batch_norm), eps};
  return recording::put_off(recording::RecordedBatchNorm::kName, {&y},
                            {&x, &parameters[0], &parameters[1], &parameters[2], &parameters[3]}, 2, body);
}

}  // namespace

void _batch_norm_statistics(Out& out, Out& mean, Out& rstd, const Tensor& input, const Tensor& weight,
                            const Tensor& bias, const Tensor& running_mean, const Tensor& running_var, bool training,
                            double momentum, double eps) {
  MICA_CHECK_KIND(input.dim() >= 2, Index, "Dimension out of range (expected to be in range of [", -input.dim(), ", ",
                  input.dim() - 1, "], but got 1): batch_norm() needs a batch and a channel dimension");
  const int64_t channels = input.size(1);
  MICA_CHECK(training || running_mean.defined(), "running_mean must be defined in evaluation mode");
  MICA_CHECK(training || running_var.defined(), "running_var must be defined in evaluation mode");
  check_channel_parameter("running_mean", running_mean, channels);
  check_channel_parameter("running_var", running_var, channels);
  check_channel_parameter("weight", weight, channels);
  check_channel_parameter("bias", bias, channels);
  check_one_device("batch_norm", {&input, &weight, &bias, &running_mean, &running_var});
  if (!is_floating(input.dtype())) unsupported_dtype("batch_norm", input.dtype());
  // torch does not check where nothing is computed.
  if (input.numel() > 0) check_parameter_dtypes(input, {&weight, &bias, &running_mean, &running_var});
  for (const Tensor* t : {&running_mean, &running_var})
    if (training && t->defined()) check_no_internal_overlap("batch_norm", *t);
  const ChannelLayout layout(input);
  const DType statistics = statistics_dtype(input);
  const int64_t kept = training ? channels : 0;
  const recording::Promises promised(!training && recording::rows_may_wait(input));
  const Tensor& result = out.set(input.sizes(), input.dtype(), input.device(), layout.strides);
  const Tensor& means = mean.set({kept}, statistics, input.device());
  const Tensor& scales = rstd.set({kept}, statistics, input.device());
  if (!out.needs_kernel()) {
    if (kept && !means.is_meta()) means.zero_(), scales.zero_();
    return;
  }
  const Tensor x = layout.of(input), y = layout.of(result), w = dense(weight), b = dense(bias);
  if (!training && put_off_evaluation(y, x, w, b, running_mean, running_var, eps)) return;
  const InPlace moving_mean(running_mean), moving_var(running_var);
  MICA_LAYER_KERNEL(input.device(), batch_norm)
  (y.view_of(), means.view_of(), scales.view_of(), moving_mean.view(), moving_var.view(), x.view_of(), view_or_none(w),
   view_or_none(b), training, momentum, eps);
  if (!training) return;
  moving_mean.finish();
  moving_var.finish();
}

void _group_norm_statistics(Out& out, Out& mean, Out& rstd, const Tensor& input, const Tensor& weight,
                            const Tensor& bias, int64_t N, int64_t C, int64_t HxW, int64_t group, double eps) {
  MICA_CHECK(group > 0, "Expected num groups to be greater than 0, got ", group);
  MICA_CHECK(C % group == 0,
             "Expected number of channels in input to be divisible by num_groups, but got input of shape ",
             input.sizes(), " and num_groups=", group);
  for (const auto& [name, t] : {std::pair<const char*, const Tensor&>{"weight", weight}, {"bias", bias}})
    MICA_CHECK(!t.defined() || (t.dim() == 1 && t.numel() == C), "Expected ", name,
               " to be a vector of size equal to the number of channels in input, but got ", name, " of shape ",
               t.defined() ? t.sizes() : IntArrayRef(), " and input of shape ", input.sizes());
  MICA_CHECK(input.numel() == count_elements({N, C, HxW}), "native_group_norm: N * C * HxW is ", N, " * ", C, " * ",
             HxW, ", which is not the number of elements of an input of ", input.sizes());
  check_one_device("group_norm", {&input, &weight, &bias});
  if (!is_floating(input.dtype())) unsupported_dtype("GroupNormKernelImpl", input.dtype());
  check_parameter_dtypes(input, {&weight, &bias});
  const MemoryFormat format = input.suggest_memory_format();
  const Tensor& result =
      out.set(input.sizes(), input.dtype(), input.device(), memory_format_strides(input.sizes(), format));
  const Tensor& means = mean.set({N, group}, statistics_dtype(input), input.device());
  const Tensor& scales = rstd.set({N, group}, statistics_dtype(input), input.device());
  if (!out.needs_kernel()) return;
  const Tensor x = input.contiguous().view({N, C, HxW}), w = dense(weight), b = dense(bias);
  const bool direct = result.is_contiguous();
  const Tensor y = direct ? result.view({N, C, HxW}) : empty_like(x);
  MICA_LAYER_KERNEL(input.device(), group_norm)
  (y.view_of(), means.view_of(), scales.view_of(), x.view_of(), view_or_none(w), view_or_none(b), eps);
  if (!direct) result.copy_(y.view(input.sizes()));
}

}  // namespace mica::shapes
