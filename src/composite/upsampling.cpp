// The resampling functions of torch.nn.functional.
#include <cmath>

#include "core/geometry.h"
#include "mica/generated/layers/pooling.h"
#include "mica/generated/layers/upsampling.h"
#include "mica/generated/layers/upsampling_implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

namespace {

constexpr size_t kSingle = 9;  // a single number comes as a list of this many equal ones

// The sizes asked for: one for each dimension.
DimVector wanted_sizes(const Tensor& input, IntArrayRef size, int64_t n) {
  if (size.size() == kSingle) return DimVector(static_cast<size_t>(n), size[0]);
  MICA_CHECK_KIND(static_cast<int64_t>(size.size()) == n, Value,
                  "Input and output must have the same number of spatial dimensions, but got input with spatial "
                  "dimensions of ",
                  input.sizes().slice(2, static_cast<size_t>(n)), " and output size of ", size,
                  ". Please provide input tensor in (N, C, d1, d2, ...,dK) format and output size in (o1, o2, ...,oK) "
                  "format.");
  return DimVector(size);
}

std::vector<double> wanted_factors(const Tensor& input, ArrayRef<double> factors, int64_t n) {
  if (factors.size() == 1) return std::vector<double>(static_cast<size_t>(n), factors[0]);
  MICA_CHECK_KIND(static_cast<int64_t>(factors.size()) == n, Value,
                  "Input and scale_factor must have the same number of spatial dimensions, but got input with spatial "
                  "dimensions of ",
                  input.sizes().slice(2, static_cast<size_t>(n)), " and scale_factor of shape [", factors.size(),
                  "]. Please provide input tensor in (N, C, d1, d2, ...,dK) format and scale_factor in (s1, s2, "
                  "...,sK) format.");
  return factors.vec();
}

[[noreturn]] void wrong_mode(const Tensor& input, std::string_view mode) {
  const int64_t ndim = input.dim();
  const int64_t needed = mode == "linear" ? 3 : mode == "bilinear" ? 4 : mode == "trilinear" ? 5 : 0;
  if (needed && ndim >= 3 && ndim <= 5)
    fail(ErrorKind::NotImplemented, mica::cat("Got ", ndim, "D input, but ", mode, " mode needs ", needed, "D input"));
  fail(ErrorKind::NotImplemented,
       mica::cat("Input Error: Only 3D, 4D and 5D input Tensors supported (got ", ndim,
                 "D) for the modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | area | "
                 "nearest-exact (got ",
                 mode, ")"));
}

void warn_of_align_corners() {
  warn(
      "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
      "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details.");
}

}  // namespace

Tensor interpolate(const Tensor& input, OptionalIntArrayRef size, std::optional<ArrayRef<double>> scale_factor,
                   std::string_view mode, std::optional<bool> align_corners, std::optional<bool> recompute_scale_factor,
                   bool antialias) {
  const bool nearest = mode == "nearest" || mode == "nearest-exact";
  MICA_CHECK_KIND(!align_corners || !(nearest || mode == "area"), Value,
                  "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | "
                  "trilinear");
  const int64_t n = std::max<int64_t>(input.dim() - 2, 0);
  MICA_CHECK_KIND(!size || !scale_factor, Value, "only one of size or scale_factor should be defined");
  MICA_CHECK_KIND(size || scale_factor, Value, "either size or scale_factor should be defined");
  DimVector output;
  std::vector<double> scales(static_cast<size_t>(n), 0.0);
  if (size) {
    output = wanted_sizes(input, *size, n);
    MICA_CHECK_KIND(!recompute_scale_factor.value_or(false), Value,
                    "recompute_scale_factor is not meaningful with an explicit size.");
  } else {
    scales = wanted_factors(input, *scale_factor, n);
    for (int64_t i = 0; i < n; ++i)
      output.push_back(static_cast<int64_t>(static_cast<double>(input.sizes()[2 + i]) * scales[i]));
    if (recompute_scale_factor.value_or(false) || mode == "area") scales.assign(scales.size(), 0.0);
  }
  const bool filtered = mode == "bilinear" || mode == "bicubic" || mode == "lanczos";
  MICA_CHECK_KIND(
      !antialias || (filtered && input.dim() == 4), Value,
      "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as "
      "input");
  if (n < 1 || n > 3) wrong_mode(input, mode);
  if (mode == "area") {
    if (n == 1) return mica::adaptive_avg_pool1d(input, output);
    return n == 2 ? mica::adaptive_avg_pool2d(input, output) : mica::adaptive_avg_pool3d(input, output);
  }
  const bool fits = nearest || (mode == "linear" && n == 1) || (filtered && n == 2) || (mode == "trilinear" && n == 3);
  if (!fits) wrong_mode(input, mode);
  if (mode == "lanczos") {
    MICA_CHECK_KIND(!align_corners.value_or(false), Value, "Lanczos mode does not support align_corners=True");
    MICA_CHECK_KIND(antialias, Value, "Lanczos mode requires antialias=True");
  }
  return mica::_upsample(input, output, mode, align_corners.value_or(false), antialias, scales);
}

Tensor upsample(const Tensor& input, OptionalIntArrayRef size, std::optional<ArrayRef<double>> scale_factor,
                std::string_view mode, std::optional<bool> align_corners) {
  warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.");
  return mica::interpolate(input, size, scale_factor, mode, align_corners);
}
Tensor upsample_nearest(const Tensor& input, OptionalIntArrayRef size, std::optional<ArrayRef<double>> scale_factor) {
  warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.");
  return mica::interpolate(input, size, scale_factor, "nearest");
}
Tensor upsample_bilinear(const Tensor& input, OptionalIntArrayRef size, std::optional<ArrayRef<double>> scale_factor) {
  warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.");
  return mica::interpolate(input, size, scale_factor, "bilinear", true);
}

// ---- sampling at points ------------------------------------------------------------------------------------------

Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t interpolation_mode, int64_t padding_mode,
                    bool align_corners) {
  const bool plane_or_volume = input.dim() == 4 || input.dim() == 5;  // their sizes are checked below
  MICA_CHECK(plane_or_volume || input.dim() < 2 || grid.dim() == 0 || grid.size(-1) == input.dim() - 2,
             "grid_sampler(): expected grid to have size ", input.dim() - 2,
             " in last dimension, but got grid with sizes ", grid.sizes());
  MICA_CHECK(plane_or_volume, "grid_sampler(): expected 4D or 5D input and grid with same number ",
             "of dimensions, but got input with sizes ", input.sizes(), " and grid with sizes ", grid.sizes());
  if (input.dim() == 5) return mica::grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners);
  return mica::grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners);
}

Tensor grid_sample(const Tensor& input, const Tensor& grid, std::string_view mode, std::string_view padding_mode,
                   std::optional<bool> align_corners) {
  const int64_t modes = mode == "bilinear" ? 0 : mode == "nearest" ? 1 : mode == "bicubic" ? 2 : -1;
  MICA_CHECK_KIND(modes >= 0, Value,
                  "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '",
                  mode, "'");
  const int64_t paddings = padding_mode == "zeros"        ? 0
                           : padding_mode == "border"     ? 1
                           : padding_mode == "reflection" ? 2
                                                          : -1;
  MICA_CHECK_KIND(paddings >= 0, Value,
                  "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but "
                  "got: '",
                  padding_mode, "'");
  if (!align_corners) warn_of_align_corners();
  return mica::grid_sampler(input, grid, modes, paddings, align_corners.value_or(false));
}

namespace {

// The centres of n elements across [-1, 1], or n points from end to end.
Tensor centres(const Tensor& theta, int64_t n, bool align_corners) {
  if (n <= 1) return mica::zeros(n, theta.options());
  const Tensor ends = mica::linspace(-1, 1, n, theta.options());
  return align_corners ? ends : ends * Scalar(static_cast<double>(n - 1) / static_cast<double>(n));
}

}  // namespace

Tensor affine_grid_generator(const Tensor& theta, IntArrayRef size, bool align_corners) {
  MICA_CHECK(size.size() == 4 || size.size() == 5, "AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs.");
  const size_t n = size.size() - 2;
  DimVector shape{size[0]};
  for (size_t i = 0; i < n; ++i) shape.push_back(size[2 + i]);
  const int64_t points = count_elements(size.slice(2, n));
  shape.push_back(static_cast<int64_t>(n) + 1);
  const Tensor base = mica::empty(shape, theta.options());
  for (size_t i = 0; i < n; ++i) {  // x is the last dimension of the image and the first coordinate
    DimVector view(n, 1);
    view[n - 1 - i] = size[1 + n - i];
    base.select(-1, static_cast<int64_t>(i)).copy_(centres(theta, size[1 + n - i], align_corners).view(view));
  }
  base.select(-1, static_cast<int64_t>(n)).fill_(1);
  shape.back() = static_cast<int64_t>(n);
  const int64_t coordinates = static_cast<int64_t>(n) + 1;
  return mica::bmm(base.view({size[0], points, coordinates}), theta.transpose(1, 2)).view(shape);
}

Tensor affine_grid(const Tensor& theta, IntArrayRef size, std::optional<bool> align_corners) {
  if (!align_corners) warn_of_align_corners();
  MICA_CHECK_KIND(theta.is_floating_point(), Value, "Expected theta to have floating point type, but got ",
                  theta.dtype());
  MICA_CHECK_KIND(size.size() == 4 || size.size() == 5, NotImplemented,
                  "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size ",
                  size, ".");
  const int64_t n = static_cast<int64_t>(size.size()) - 2;
  MICA_CHECK_KIND(theta.dim() == 3 && theta.size(-2) == n && theta.size(-1) == n + 1, Value, "Expected a batch of ", n,
                  "D affine matrices of shape Nx", n, "x", n + 1, " for size ", size, ". Got ", theta.sizes(), ".");
  int64_t smallest = size[2];
  for (int64_t i = 2; i < n + 2; ++i) smallest = std::min(smallest, size[i]);
  if (align_corners.value_or(false) && smallest == 1) {
    warn(
        "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. This is "
        "not an intended use case of affine_grid. See the documentation of affine_grid for details.");
  } else {
    for (int64_t s : size) MICA_CHECK_KIND(s > 0, Value, "Expected non-zero, positive output size. Got ", size);
  }
  return mica::affine_grid_generator(theta, size, align_corners.value_or(false));
}

}  // namespace mica::composite
