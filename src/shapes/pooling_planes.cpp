// Pooling over windows of varying size, and moves between a plane and the places in it that indices name.
#include "core/uninitialized.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/pooling_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"
#include "shapes/volume.h"

namespace mica::shapes {

namespace {

// The first dimension may be empty, whether it is a batch or not.
void check_not_empty(const char* op, const Tensor& self) {
  for (int64_t d = 1; d < self.dim(); ++d)
    MICA_CHECK(self.sizes()[d] != 0, op,
               "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ", self.sizes(),
               " with dimension ", d, " being empty");
}

void check_rank(const char* op, const Tensor& self, int64_t n) {
  const int64_t ndim = self.dim();
  if (ndim == n + 1 || ndim == n + 2) return;
  if (n == 1)
    fail(mica::cat("Expected 2 to 3 dimensions, but got ", ndim,
                   "-dimensional tensor for argument #1 'self' (while checking arguments for ", op, ")"));
  const bool max = std::string_view(op).find("max") != std::string_view::npos;
  fail(mica::cat(op, "(): Expected ", n + 1, "D or ", n + 2, "D tensor, but got", max ? ": " : " ", self.sizes()));
}

DimVector with_spatial(const Tensor& self, IntArrayRef spatial) {
  DimVector sizes(self.sizes());
  const size_t from = sizes.size() - spatial.size();
  for (size_t i = 0; i < spatial.size(); ++i) sizes[from + i] = spatial[i];
  return sizes;
}

void run_adaptive_avg(Out& out, const char* op, const Tensor& self, IntArrayRef output_size, int64_t n) {
  const DimVector sizes = with_spatial(self, output_size);
  for (int64_t d = n == 3 ? 1 : self.dim() - n; d < self.dim(); ++d)
    MICA_CHECK(self.sizes()[d] != 0, op,
               "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ", self.sizes(),
               " with dimension ", d, " being empty");
  const bool last = n == 2 && prefers_channels_last(self, n);  // volumes come out contiguous, as in torch
  const Tensor& result = set_in_order(out, sizes, self.dtype(), self.device(), n, last);
  if (!out.needs_kernel()) return;
  const Tensor input = in_order(self, n, last);
  MICA_LAYER_KERNEL(self.device(), adaptive_avg_pool)(Volume(result, n, last), Volume(input, n, last), last);
}

void run_adaptive_max(Out& out, Out& indices, const char* op, const Tensor& self, IntArrayRef output_size, int64_t n) {
  check_rank(op, self, n);
  MICA_CHECK(static_cast<int64_t>(output_size.size()) == n, op,
             n == 1 ? mica::cat("() argument 'output_size' should contain one int (got ", output_size.size(), ")")
                    : mica::cat("(): internal error: output_size.size() must be ", n));
  check_not_empty(op, self);
  const DimVector sizes = with_spatial(self, output_size);
  for (int64_t s : output_size)
    MICA_CHECK(s >= 0, "Trying to create tensor with negative dimension ", s, ": ", sizes.ref());
  const bool last = n == 2 && prefers_channels_last(self, n);  // volumes come out contiguous, as in torch
  const Tensor& result = set_in_order(out, sizes, self.dtype(), self.device(), n, last);
  const Tensor& where = set_in_order(indices, sizes, DType::Int64, self.device(), n, last);
  if (!out.needs_kernel()) return;
  const Tensor input = in_order(self, n, last);
  MICA_LAYER_KERNEL(self.device(), adaptive_max_pool)
  (Volume(result, n, last), Volume(where, n, last), Volume(input, n, last), last);
}

void run_fractional(Out& out, Out& indices, const char* op, const Tensor& self, IntArrayRef kernel_size,
                    IntArrayRef output_size, const Tensor& samples, int64_t n) {
  const auto expand = [&](const char* what, IntArrayRef given) {
    MICA_CHECK(given.size() == 1 || static_cast<int64_t>(given.size()) == n, op, ": ", what,
               " must either be a single Int or tuple of Ints");
    return given.size() == 1 ? DimVector(static_cast<size_t>(n), given[0]) : DimVector(given);
  };
  const DimVector kernel = expand("kernel_size", kernel_size), target = expand("output_size", output_size);
  const int64_t ndim = self.dim();
  MICA_CHECK(ndim == n + 1 || ndim == n + 2, op, "(): Expected ", n + 1, "D or ", n + 2,
             "D tensor, but got: ", self.sizes());
  for (int64_t d = ndim == n + 2 ? 1 : 0; d < ndim; ++d)
    MICA_CHECK(self.sizes()[d] != 0, op, "(): Expected input to have non-zero size for non-batch dimensions, but got",
               self.sizes(), " with dimension ", d, " being empty.");
  static constexpr const char* kNames[] = {"time", "height", "width"};
  const char* where = n == 2 ? "fractional_max_pool2d()" : "fractional_max_pool3d_out()";
  for (int64_t i = 0; i < n; ++i) {
    const char* axis = kNames[3 - n + i];
    const int64_t in = self.sizes()[ndim - n + i];
    MICA_CHECK(kernel[i] >= 0 && target[i] >= 0, where, ": kernel_size and output_size must not be negative, but got ",
               kernel.ref(), " and ", target.ref());
    MICA_CHECK(target[i] - 1 <= in - kernel[i], where, ": pool ", axis, " ", kernel[i], " too large relative to input ",
               axis, " ", in);
  }
  const int64_t batch = ndim == n + 2 ? self.sizes()[0] : 1, channels = self.sizes()[ndim - n - 1];
  check_one_device(op, {&self, &samples});
  MICA_CHECK(samples.dtype() == self.dtype(), "Expect _random_samples to have the same dtype as input");
  MICA_CHECK(samples.dim() == 3, "Expect _random_samples to have 3 dimensions, got ", samples.dim());
  MICA_CHECK(samples.sizes()[0] >= batch, "Expect _random_samples.size(0) no less then input batch size.");
  MICA_CHECK(samples.sizes()[1] == channels, "Expect _random_samples.size(1) equals to input channel size.");
  MICA_CHECK(samples.sizes()[2] == n, "Expect _random_samples.size(2) equals to ", n, "; got ", samples.sizes()[2],
             ".");
  const DimVector sizes = with_spatial(self, target);
  const Tensor& result = out.set(sizes, self.dtype(), self.device());
  const Tensor& places = indices.set(sizes, DType::Int64, self.device());
  if (!out.needs_kernel()) return;
  const Tensor input = self.contiguous(), draws = samples.contiguous();
  // Of two dimensions torch draws the width first, of three the depth.
  const DimVector axes = n == 2 ? DimVector{2, 1} : DimVector{0, 1, 2};
  MICA_LAYER_KERNEL(self.device(), fractional_max_pool)
  (Volume(result, n, false), Volume(places, n, false), Volume(input, n, false), draws.view_of(), three(kernel, 1),
   axes);
}

void check_unpool(const Tensor& self, const Tensor& indices, IntArrayRef output_size, int64_t n) {
  alert_not_deterministic(n == 2 ? "max_unpooling2d_forward_out" : "max_unpooling3d_forward_out");
  MICA_CHECK(indices.dtype() == DType::Int64,
             n == 2 ? "elements in indices should be type int64 but got: "
                    : "elements in indices should be type int64, but got: ",
             info(indices.dtype()).legacy);
  MICA_CHECK(self.dim() == n + 1 || self.dim() == n + 2, "Input to max_unpooling", n, "d should be a ", n + 1, "d or ",
             n + 2, "d Tensor, but got a tensor with ", self.dim(), " dimensions.");
  MICA_CHECK(static_cast<int64_t>(output_size.size()) == n, "There should be exactly ",
             n == 2 ? "two elements (height, width)" : "three elements (depth, height, width)",
             " in output_size, but got ", output_size.size(), " elements.");
  check_one_device("max_unpool", {&self, &indices});
  MICA_CHECK(self.sizes() == indices.sizes(), "Expected shape of indices to be same as that of the input tensor (",
             self.sizes(), ") but got indices tensor with shape: ", indices.sizes());
  for (int64_t d = self.dim() == n + 2 ? 1 : 0; d < self.dim(); ++d)
    MICA_CHECK(self.sizes()[d] != 0, "max_unpooling", n,
               "d_forward_out_cpu(): Expected input to have non-zero size for non-batch dimensions, but got ",
               self.sizes(), " with dimension ", d, " being empty.");
}

void run_unpool(Out& out, const Tensor& self, const Tensor& indices, IntArrayRef output_size, int64_t n) {
  const bool last = n == 2 && prefers_channels_last(self, n);  // volumes come out contiguous, as in torch
  const Tensor& result = set_in_order(out, with_spatial(self, output_size), self.dtype(), self.device(), n, last);
  if (self.numel() == 0 || result.numel() == 0 || self.is_meta()) return;  // nothing is written to an empty plane
  const Tensor source = in_order(self, n, last), where = in_order(indices, n, last);
  MICA_LAYER_KERNEL(self.device(), plane_scatter)
  (Volume(result, n, last), Volume(source, n, last), Volume(where, n, last), last);
}

}  // namespace

void _adaptive_avg_pool1d(Out& out, const Tensor& self, IntArrayRef output_size) {
  run_adaptive_avg(out, "adaptive_avg_pool1d", self, output_size, 1);
}
void _adaptive_avg_pool2d(Out& out, const Tensor& self, IntArrayRef output_size) {
  run_adaptive_avg(out, "adaptive_avg_pool2d", self, output_size, 2);
}
void _adaptive_avg_pool3d(Out& out, const Tensor& self, IntArrayRef output_size) {
  run_adaptive_avg(out, "adaptive_avg_pool3d", self, output_size, 3);
}

void _adaptive_avg_pool_backward(Out& out, const Tensor& grad_output, IntArrayRef input_size, int64_t n,
                                 bool channels_last) {
  const Tensor& result = set_in_order(out, input_size, grad_output.dtype(), grad_output.device(), n, channels_last);
  if (!out.needs_kernel()) return;
  const Tensor grad = in_order(grad_output, n, channels_last);
  MICA_LAYER_KERNEL(grad.device(), adaptive_avg_pool_backward)
  (Volume(result, n, channels_last), Volume(grad, n, channels_last), channels_last);
}

void adaptive_max_pool1d(Out& out, Out& indices, const Tensor& self, IntArrayRef output_size) {
  run_adaptive_max(out, indices, "adaptive_max_pool1d", self, output_size, 1);
}
void adaptive_max_pool2d(Out& out, Out& indices, const Tensor& self, IntArrayRef output_size) {
  run_adaptive_max(out, indices, "adaptive_max_pool2d", self, output_size, 2);
}
void adaptive_max_pool3d(Out& out, Out& indices, const Tensor& self, IntArrayRef output_size) {
  run_adaptive_max(out, indices, "adaptive_max_pool3d", self, output_size, 3);
}

void fractional_max_pool2d(Out& out, Out& indices, const Tensor& self, IntArrayRef kernel_size, IntArrayRef output_size,
                           const Tensor& random_samples) {
  run_fractional(out, indices, "fractional_max_pool2d", self, kernel_size, output_size, random_samples, 2);
}
void fractional_max_pool3d(Out& out, Out& indices, const Tensor& self, IntArrayRef kernel_size, IntArrayRef output_size,
                           const Tensor& random_samples) {
  run_fractional(out, indices, "fractional_max_pool3d", self, kernel_size, output_size, random_samples, 3);
}

void max_unpool2d(Out& out, const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  check_unpool(self, indices, output_size, 2);
  run_unpool(out, self, indices, output_size, 2);
}
void max_unpool3d(Out& out, const Tensor& self, const Tensor& indices, IntArrayRef output_size, IntArrayRef stride,
                  IntArrayRef) {
  for (int64_t s : stride) MICA_CHECK(s > 0, "strides should be greater than zero, but got stride: ", stride);
  check_unpool(self, indices, output_size, 3);
  run_unpool(out, self, indices, output_size, 3);
}

void _max_pool_backward(Out& out, const Tensor& grad_output, const Tensor& indices, IntArrayRef input_size, int64_t n,
                        bool channels_last) {
  const Tensor& result = set_in_order(out, input_size, grad_output.dtype(), grad_output.device(), n, channels_last);
  if (!out.needs_kernel()) return;
  const Tensor grad = in_order(grad_output, n, channels_last), where = in_order(indices, n, channels_last);
  MICA_LAYER_KERNEL(grad.device(), plane_scatter_add)
  (Volume(result, n, channels_last), Volume(grad, n, channels_last), Volume(where, n, channels_last), channels_last);
}

void _max_pool_gather(Out& out, const Tensor& self, const Tensor& indices, int64_t n) {
  const bool last = prefers_channels_last(indices, n);
  const Tensor& result = set_in_order(out, indices.sizes(), self.dtype(), self.device(), n, last);
  if (!out.needs_kernel()) return;
  const Tensor source = in_order(self, n, last), where = in_order(indices, n, last);
  MICA_LAYER_KERNEL(self.device(), plane_gather)
  (Volume(result, n, last), Volume(source, n, last), Volume(where, n, last), last);
}

}  // namespace mica::shapes
