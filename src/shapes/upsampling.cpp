// Resampling at another resolution, and at given points.
#include "core/kernel_arguments.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/upsampling_implementations.h"
#include "mica/ops.h"
#include "shapes/volume.h"

namespace mica::shapes {

namespace {

// "(H: 4, W: 5)"
std::string sizes_text(IntArrayRef spatial) {
  static constexpr const char* kNames[] = {"D", "H", "W"};
  std::string text = "(";
  for (size_t i = 0; i < spatial.size(); ++i)
    text += mica::cat(i ? ", " : "", kNames[3 - spatial.size() + i], ": ", spatial[i]);
  return text + ")";
}

void check_sizes(const Tensor& self, IntArrayRef output_size) {
  const size_t n = output_size.size();
  const IntArrayRef sizes = self.sizes(), spatial = sizes.slice(2, n);
  for (size_t i = 0; i < n; ++i)
    MICA_CHECK(spatial[i] > 0 && output_size[i] > 0, "Input and output sizes should be greater than 0, but got input ",
               sizes_text(spatial), n == 2 ? " output " : " and output ", sizes_text(output_size));
  MICA_CHECK(self.sizes()[1] != 0, "Non-empty ", n + 2, "D data tensor expected but got a tensor with sizes ",
             self.sizes());
}

// The kernels know two dtypes. Shorter floats are computed in float32, as in torch, and rounded once.
Tensor sampled(const Tensor& t) { return widened(t).contiguous(); }

void check_grid_sampler(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, int64_t ndim) {
  MICA_CHECK(mode >= 0 && mode <= 2 && padding >= 0 && padding <= 2,
             "grid_sampler(): interpolation_mode and padding_mode are numbers from 0 to 2, but got ", mode, " and ",
             padding);
  MICA_CHECK(input.dtype() == grid.dtype(), "expected scalar type ", info(input.dtype()).legacy, " but found ",
             info(grid.dtype()).legacy, ": grid_sampler() wants input and grid of one dtype");
  MICA_CHECK(input.device() == grid.device(),
             "grid_sampler(): expected input and grid to be on same device, but input is on ", input.device(),
             " and grid is on ", grid.device());
  MICA_CHECK(input.dim() == 0 || grid.dim() == 0 || input.sizes()[0] == grid.sizes()[0],
             "grid_sampler(): expected grid and input to have same batch size, but got input with sizes ",
             input.sizes(), " and grid with sizes ", grid.sizes());
  MICA_CHECK(input.dim() < 2 || grid.dim() == 0 || grid.size(-1) == input.dim() - 2,
             "grid_sampler(): expected grid to have size ", input.dim() - 2,
             " in last dimension, but got grid with sizes ", grid.sizes());
  MICA_CHECK(input.dim() == ndim && grid.dim() == ndim, "grid_sampler(): expected ", ndim,
             "D input and grid with same number of dimensions, but got input with sizes ", input.sizes(),
             " and grid with sizes ", grid.sizes());
  for (int64_t d = 2; d < ndim; ++d)
    MICA_CHECK(input.sizes()[d] > 0,
               "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes ",
               input.sizes(), " with dimension ", d, " being empty");
  MICA_CHECK(ndim == 4 || mode != 2, "grid_sampler(): bicubic interpolation only supports 4D input");
}

void run_grid_sampler(Out& out, const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding,
                      bool align_corners, int64_t ndim) {
  check_grid_sampler(input, grid, mode, padding, ndim);
  DimVector sizes{input.sizes()[0], input.sizes()[1]};
  for (int64_t d = 1; d + 1 < ndim; ++d) sizes.push_back(grid.sizes()[d]);
  const Tensor& result = out.set(sizes, input.dtype(), input.device());
  if (!out.needs_kernel()) return;
  const Tensor image = sampled(input), points = sampled(grid);
  const Tensor computed = image.dtype() == input.dtype() ? result : mica::empty(sizes, image.options());
  MICA_LAYER_KERNEL(input.device(), grid_sample)
  (computed.view_of(), image.view_of(), points.view_of(), mode, padding, align_corners);
  if (!computed.is_same(result)) result.copy_(computed);
}

}  // namespace

void _upsample(Out& out, const Tensor& self, IntArrayRef output_size, std::string_view mode, bool align_corners,
               bool antialias, ArrayRef<double> scales) {
  const int64_t n = static_cast<int64_t>(output_size.size());
  MICA_CHECK(self.dim() == n + 2, "It is expected input_size equals to ", n + 2, ", but got size ", self.dim());
  check_sizes(self, output_size);
  DimVector sizes(self.sizes());
  for (int64_t i = 0; i < n; ++i) sizes[2 + i] = output_size[i];
  const bool last = prefers_channels_last(self, n);
  const Tensor& result = set_in_order(out, sizes, self.dtype(), self.device(), n, last);
  if (!out.needs_kernel()) return;
  const Tensor input = in_order(self, n, last);
  MICA_LAYER_KERNEL(self.device(), upsample)
  (Volume(result, n, last), Volume(input, n, last), mode, align_corners, antialias, scales, last);
}

void _upsample_backward(Out& out, const Tensor& grad_output, IntArrayRef input_size, std::string_view mode,
                        bool align_corners, bool antialias, ArrayRef<double> scales, bool channels_last) {
  const int64_t n = static_cast<int64_t>(input_size.size()) - 2;
  const Tensor& result = set_in_order(out, input_size, grad_output.dtype(), grad_output.device(), n, channels_last);
  if (!out.needs_kernel()) return;
  const Tensor grad = in_order(grad_output, n, channels_last);
  MICA_LAYER_KERNEL(grad.device(), upsample_backward)
  (Volume(result, n, channels_last), Volume(grad, n, channels_last), mode, align_corners, antialias, scales,
   channels_last);
}

void grid_sampler_2d(Out& out, const Tensor& input, const Tensor& grid, int64_t interpolation_mode,
                     int64_t padding_mode, bool align_corners) {
  run_grid_sampler(out, input, grid, interpolation_mode, padding_mode, align_corners, 4);
}
void grid_sampler_3d(Out& out, const Tensor& input, const Tensor& grid, int64_t interpolation_mode,
                     int64_t padding_mode, bool align_corners) {
  run_grid_sampler(out, input, grid, interpolation_mode, padding_mode, align_corners, 5);
}

void _grid_sampler_backward(Out& grad_input, Out& grad_grid, const Tensor& grad_output, const Tensor& input,
                            const Tensor& grid, int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
                            bool input_wanted, bool grid_wanted) {
  const Tensor image = sampled(input), points = sampled(grid), grad = sampled(grad_output);
  const Tensor for_input = mica::zeros(input_wanted ? input.sizes() : IntArrayRef{0}, image.options());
  const Tensor for_grid = mica::zeros(grid_wanted ? grid.sizes() : IntArrayRef{0}, image.options());
  if (!input.is_meta() && grad.numel() > 0) MICA_LAYER_KERNEL(input.device(), grid_sample_backward)
  (input_wanted ? for_input.view_of() : TensorView(), grid_wanted ? for_grid.view_of() : TensorView(), grad.view_of(),
   image.view_of(), points.view_of(), interpolation_mode, padding_mode, align_corners);
  grad_input.take(for_input.to(input.dtype()));
  grad_grid.take(for_grid.to(grid.dtype()));
}

}  // namespace mica::shapes
