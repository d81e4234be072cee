// Rules of the normalisations over trailing dimensions: layer_norm and rms_norm.
#include <limits>

#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/recorded_rows.h"
#include "mica/generated/layers/normalization_implementations.h"
#include "mica/backend/layer_backend.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"

namespace mica::shapes {

namespace {

// The sizes of one number per row: those of the input, with ones in place of what is normalised.
DimVector statistics_sizes(const Tensor& input, IntArrayRef normalized_shape) {
  DimVector sizes(input.sizes());
  for (size_t i = sizes.size() - normalized_shape.size(); i < sizes.size(); ++i) sizes[i] = 1;
  return sizes;
}

void check_normalized(const Tensor& input, IntArrayRef normalized_shape) {
  MICA_CHECK(!normalized_shape.empty(),
             "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
             "normalized_shape = ",
             normalized_shape);
  const size_t n = normalized_shape.size(), ndim = static_cast<size_t>(input.dim());
  if (ndim >= n && input.sizes().slice(ndim - n, n) == normalized_shape) return;
  std::string text = mica::cat("Given normalized_shape=", normalized_shape, ", expected input with shape [*");
  for (int64_t s : normalized_shape) text += mica::cat(", ", s);
  fail(text + mica::cat("], but got input of size", input.sizes()));
}

void check_parameter(const char* what, const Tensor& parameter, IntArrayRef normalized_shape) {
  MICA_CHECK(!parameter.defined() || parameter.sizes() == normalized_shape, "Expected ", what,
             " to be of same shape as normalized_shape, but got ", what, " of shape ", parameter.sizes(),
             " and normalized_shape = ", normalized_shape);
}

Tensor dense(const Tensor& t) { return t.defined() ? t.contiguous() : t; }

}  // namespace

void native_layer_norm(Out& out, Out& mean, Out& rstd, const Tensor& input, IntArrayRef normalized_shape,
                       const Tensor& weight, const Tensor& bias, double eps) {
  check_normalized(input, normalized_shape);
  check_parameter("weight", weight, normalized_shape);
  check_parameter("bias", bias, normalized_shape);
  check_one_device("layer_norm", {&input, &weight, &bias});
  DType statistics = input.dtype();
  for (const Tensor* p : {&weight, &bias}) {
    if (!p->defined() || p->dtype() == input.dtype()) continue;
    MICA_CHECK(is_narrow(input.dtype()),
               input.dtype() == DType::Float32 ? "mixed dtype (CPU): expect parameter to have scalar type of Float"
                                               : "mixed dtype (CPU): all inputs must share same datatype.",
               " Got ", *p, " beside an input of ", input.dtype());
    MICA_CHECK(p->dtype() == DType::Float32, "mixed dtype (CPU): expect parameter to have scalar type of Float. Got ",
               *p);
    statistics = DType::Float32;
  }
  const DimVector rows = statistics_sizes(input, normalized_shape);
  const Tensor x = input.contiguous(), w = dense(weight), b = dense(bias);
  const int64_t count = count_elements(normalized_shape);
  const bool waits = recording::layer_norm_waits(x, w, b, count);
  const recording::Promises promised(waits);
  const Tensor& result = out.set(input.sizes(), input.dtype(), input.device());
  const Tensor& means = mean.set(rows, statistics, input.device());
  const Tensor& scales = rstd.set(rows, statistics, input.device());
  if (!mean.needs_kernel()) return;
  if (waits && recording::put_off_norm(result, means, scales, x, w, b, count, eps)) return;
  MICA_LAYER_KERNEL(input.device(), layer_norm)
  (result.view_of(), means.view_of(), scales.view_of(), x.view_of(), view_or_none(w), view_or_none(b), count, eps);
}

void _fused_rms_norm(Out& out, Out& rstd, const Tensor& input, IntArrayRef normalized_shape, const Tensor& weight,
                     std::optional<double> eps) {
  check_normalized(input, normalized_shape);
  check_parameter("weight", weight, normalized_shape);
  check_one_device("rms_norm", {&input, &weight});
  const bool wide = input.dtype() == DType::Float64;
  const double epsilon =
      eps.value_or(wide ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon());
  const Tensor x = input.contiguous(), w = dense(weight);
  const int64_t count = count_elements(normalized_shape);
  const bool waits = recording::rms_norm_waits(x, w, count);
  const recording::Promises promised(waits);
  const Tensor& result = out.set(input.sizes(), input.dtype(), input.device());
  const Tensor& scales =
      rstd.set(statistics_sizes(input, normalized_shape), wide ? DType::Float64 : DType::Float32, input.device());
  if (!rstd.needs_kernel()) return;
  if (waits && recording::put_off_norm(result, {}, scales, x, w, {}, count, epsilon)) return;
  MICA_LAYER_KERNEL(input.device(), rms_norm)
  (result.view_of(), scales.view_of(), x.view_of(), view_or_none(w), count, epsilon);
}

}  // namespace mica::shapes
