// Pooling over windows of one size: max_pool and avg_pool in one to three dimensions.
#include "core/interleaved.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/pooling_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"
#include "shapes/volume.h"

namespace mica::shapes {

namespace {

constexpr const char* kAxes[] = {"T", "H", "W"};  // as torch's messages call depth, height and width

const char* axis_name(int64_t spatial_dims, int64_t i) { return kAxes[3 - spatial_dims + i]; }

// "kH: 3 kW: 2"
std::string named(const char* prefix, IntArrayRef values) {
  std::string text;
  const int64_t n = static_cast<int64_t>(values.size());
  for (int64_t i = 0; i < n; ++i)
    text += mica::cat(i ? " " : "", prefix, n == 1 ? "W" : axis_name(n, i), ": ", values[i]);
  return text;
}

// "3x4x5"
std::string product_text(IntArrayRef values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) text += mica::cat(i ? "x" : "", values[i]);
  return text;
}

struct PoolArguments {
  DimVector kernel, stride, padding, dilation;
};

DimVector expanded(const std::string& message, IntArrayRef given, int64_t spatial_dims) {
  MICA_CHECK(given.size() == 1 || static_cast<int64_t>(given.size()) == spatial_dims, message, " (got ", given.size(),
             ")");
  return given.size() == 1 ? DimVector(static_cast<size_t>(spatial_dims), given[0]) : DimVector(given);
}

PoolArguments expand(const char* op, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                     int64_t n) {
  PoolArguments a;
  if (n == 1) {
    const auto message = [&](const char* what) {
      return mica::cat(op, "() argument '", what, "' should contain one int");
    };
    a.kernel = expanded(message("kernel_size"), kernel, 1);
    a.stride = stride.empty() ? a.kernel : expanded(message("stride"), stride, 1);
    a.padding = expanded(message("padding"), padding, 1);
    a.dilation = expanded(message("dilation"), dilation, 1);
    return a;
  }
  const std::string tuple = n == 2 ? "a single int, or a tuple of two ints" : "a single int, or a tuple of three ints";
  const std::string either = std::string_view(op) == "avg_pool3d" ? "" : "either ";
  a.kernel = expanded(mica::cat(op, ": kernel_size must ", either, "be ", tuple), kernel, n);
  a.stride =
      stride.empty() ? a.kernel : expanded(mica::cat(op, ": stride must ", either, "be omitted, ", tuple), stride, n);
  a.padding = expanded(mica::cat(op, ": padding must ", either, "be ", tuple), padding, n);
  a.dilation = expanded(mica::cat(op, ": dilation must be either ", tuple), dilation, n);
  return a;
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

int64_t pooled_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  MICA_CHECK(stride != 0, "stride should not be zero");
  MICA_CHECK(padding >= 0, "pad must be non-negative, but got pad: ", padding);
  MICA_CHECK(padding <= ((kernel - 1) * dilation + 1) / 2 || kernel <= 0 || dilation <= 0,
             "pad should be at most half of effective kernel size, but got pad=", padding, ", kernel_size=", kernel,
             " and dilation=", dilation);
  const int64_t reach = in + 2 * padding - dilation * (kernel - 1) - 1;
  int64_t out = floor_div(reach + (ceil_mode ? stride - 1 : 0), stride) + 1;
  if (ceil_mode && (out - 1) * stride >= in + padding) --out;  // the last window must begin inside the input
  return out;
}

// A batch may be empty; nothing else may.
void check_not_empty(const char* op, const Tensor& self, int64_t n) {
  const bool batched = self.dim() == n + 2;
  for (int64_t d = batched ? 1 : 0; d < self.dim(); ++d) {
    if (self.sizes()[d] != 0) continue;
    if (n == 3) {
      const bool max = std::string_view(op).substr(0, 3) == "max";
      fail(mica::cat(max ? "max_pool3d_with_indices_out_cpu_template()" : "avg_pool3d()",
                     ": Expected input's non-batch dimensions to have positive length, but input has a shape of ",
                     self.sizes(), " and non-batch dimension ", d - batched, " has length zero!"));
    }
    fail(mica::cat("Expected ", n + 1, "D or ", n + 2,
                   "D (batch mode) tensor with optional 0 dim batch size for input, but got:", self.sizes()));
  }
}

// The sizes of the result; every argument has been checked.
DimVector pooled_sizes(const char* op, const Tensor& self, const PoolArguments& a, bool ceil_mode, int64_t n) {
  const int64_t ndim = self.dim();
  MICA_CHECK(ndim == n + 1 || ndim == n + 2,
             n == 1 ? mica::cat("Expected 2 to 3 dimensions, but got ", ndim,
                                "-dimensional tensor for argument #1 'self' (while checking arguments for ", op, ")")
                    : mica::cat("non-empty ", n + 1, "D or ", n + 2, "D (batch mode) tensor expected for input, but ",
                                op, "() got ", self.sizes()));
  check_window_numbers("kernel_size", a.kernel);
  check_window_numbers("stride", a.stride);
  check_window_numbers("padding", a.padding);
  check_window_numbers("dilation", a.dilation);
  DimVector sizes(self.sizes());
  for (int64_t i = 0; i < n; ++i)
    sizes[ndim - n + i] =
        pooled_size(self.sizes()[ndim - n + i], a.kernel[i], a.stride[i], a.padding[i], a.dilation[i], ceil_mode);
  for (int64_t i = 0; i < n; ++i) {
    MICA_CHECK(a.kernel[i] > 0, "kernel size should be greater than zero, but got ", named("k", a.kernel));
    MICA_CHECK(a.stride[i] > 0, "stride should be greater than zero, but got ", named("d", a.stride));
    MICA_CHECK(a.dilation[i] > 0, "dilation should be greater than zero, but got ", named("dilation", a.dilation));
  }
  check_not_empty(op, self, n);
  for (int64_t i = 0; i < n; ++i)
    MICA_CHECK(a.padding[i] <= a.kernel[i] / 2, "pad should be smaller than or equal to half of kernel size, but got ",
               named("pad", a.padding), ", ", named("k", a.kernel));
  const IntArrayRef spatial{self.sizes().data() + ndim - n, static_cast<size_t>(n)};
  for (int64_t i = 0; i < n && std::string_view(op) == "avg_pool3d"; ++i)
    MICA_CHECK(sizes[ndim - n + i] >= 1, "input image (", named("", spatial), ") smaller than kernel size (",
               named("k", a.kernel), ")");
  for (int64_t i = 0; i < n; ++i)
    MICA_CHECK(sizes[ndim - n + i] >= 1, "Given input size: (", product_text(self.sizes().slice(ndim - n - 1, n + 1)),
               "). Calculated output size: (", product_text(IntArrayRef(sizes).slice(ndim - n - 1, n + 1)),
               "). Output size is too small");
  return sizes;
}

void run_max_pool(Out& out, Out& indices, const char* op, const Tensor& self, const PoolArguments& a, bool ceil_mode,
                  DType index_type, bool keep_indices) {
  const int64_t n = static_cast<int64_t>(a.kernel.size());
  const DimVector sizes = pooled_sizes(op, self, a, ceil_mode, n);
  const bool last = prefers_channels_last(self, n);
  const Tensor& result = set_in_order(out, sizes, self.dtype(), self.device(), n, last);
  if (keep_indices) {
    set_in_order(indices, sizes, index_type, self.device(), n, last);
  } else {
    indices.set({0}, index_type, self.device());
  }
  if (!out.needs_kernel()) return;
  const DimVector k = three(a.kernel, 1), s = three(a.stride, 1), p = three(a.padding, 0), d = three(a.dilation, 1);
  const auto pool_interleaved = [&] {
    const Volume from = Volume::interleaved(self, n), to = Volume::interleaved(result, n);
    MICA_LAYER_KERNEL(self.device(), max_pool)(to, TensorView(), from, k, s, p, d, true);
  };
  if (!keep_indices && !out.defined_given() && recording::compute_interleaved(result, self, pool_interleaved)) return;
  const Tensor input = in_order(self, n, last);
  const Volume from(input, n, last), to(result, n, last);
  if (!keep_indices) return MICA_LAYER_KERNEL(self.device(), max_pool)(to, TensorView(), from, k, s, p, d, last);
  const Volume where(indices.tensor(), n, last);
  MICA_LAYER_KERNEL(self.device(), max_pool)(to, where, from, k, s, p, d, last);
}

void run_avg_pool(Out& out, const char* op, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                  IntArrayRef padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor,
                  int64_t n) {
  const PoolArguments a = expand(op, kernel_size, stride, padding, {1}, n);
  MICA_CHECK(!divisor || *divisor != 0, "divisor must be not zero");
  const DimVector sizes = pooled_sizes(op, self, a, ceil_mode, n);
  const bool last = n == 2 && prefers_channels_last(self, n);  // volumes come out contiguous, as in torch
  const Tensor& result = set_in_order(out, sizes, self.dtype(), self.device(), n, last);
  if (!out.needs_kernel()) return;
  const Tensor input = in_order(self, n, last);
  const Volume from(input, n, last), to(result, n, last);
  MICA_LAYER_KERNEL(self.device(), avg_pool)
  (to, from, three(a.kernel, 1), three(a.stride, 1), three(a.padding, 0), count_include_pad, divisor.value_or(0), last);
}

constexpr const char* kMaxPoolNames[] = {"max_pool1d", "max_pool2d", "max_pool3d"};
constexpr const char* kAvgPoolNames[] = {"avg_pool1d", "avg_pool2d", "avg_pool3d"};

}  // namespace

void _max_pool(Out& out, Out& indices, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
               IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, bool keep_indices) {
  const int64_t n = static_cast<int64_t>(kernel_size.size());
  int64_t plane = 1;
  for (int64_t d = std::max<int64_t>(self.dim() - n, 0); d < self.dim(); ++d) plane *= self.sizes()[d];
  const DType index_type = plane <= INT32_MAX ? DType::Int32 : DType::Int64;
  const PoolArguments a{kernel_size, stride, padding, dilation};
  run_max_pool(out, indices, kMaxPoolNames[n - 1], self, a, ceil_mode, index_type, keep_indices);
}

void max_pool1d_with_indices(Out& out, Out& indices, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                             IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  const PoolArguments a = expand("max_pool1d", kernel_size, stride, padding, dilation, 1);
  run_max_pool(out, indices, "max_pool1d", self, a, ceil_mode, DType::Int64, true);
}
void max_pool2d_with_indices(Out& out, Out& indices, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                             IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  const PoolArguments a = expand("max_pool2d", kernel_size, stride, padding, dilation, 2);
  run_max_pool(out, indices, "max_pool2d", self, a, ceil_mode, DType::Int64, true);
}
void max_pool3d_with_indices(Out& out, Out& indices, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                             IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  const PoolArguments a = expand("max_pool3d", kernel_size, stride, padding, dilation, 3);
  run_max_pool(out, indices, "max_pool3d", self, a, ceil_mode, DType::Int64, true);
}

void avg_pool1d(Out& out, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                bool ceil_mode, bool count_include_pad) {
  run_avg_pool(out, "avg_pool1d", self, kernel_size, stride, padding, ceil_mode, count_include_pad, std::nullopt, 1);
}
void avg_pool2d(Out& out, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  run_avg_pool(out, "avg_pool2d", self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor, 2);
}
void avg_pool3d(Out& out, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  run_avg_pool(out, "avg_pool3d", self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor, 3);
}

void _avg_pool_backward(Out& out, const Tensor& grad_output, IntArrayRef input_size, IntArrayRef kernel_size,
                        IntArrayRef stride, IntArrayRef padding, bool, bool count_include_pad,
                        std::optional<int64_t> divisor, int64_t spatial_dims, bool channels_last) {
  const int64_t n = spatial_dims;
  const PoolArguments a = expand(kAvgPoolNames[n - 1], kernel_size, stride, padding, {1}, n);
  const Tensor& result = set_in_order(out, input_size, grad_output.dtype(), grad_output.device(), n, channels_last);
  if (!out.needs_kernel()) return;
  const Tensor grad = in_order(grad_output, n, channels_last);
  const Volume from(grad, n, channels_last), to(result, n, channels_last);
  MICA_LAYER_KERNEL(grad.device(), avg_pool_backward)
  (to, from, three(a.kernel, 1), three(a.stride, 1), three(a.padding, 0), count_include_pad, divisor.value_or(0),
   channels_last);
}

}  // namespace mica::shapes
