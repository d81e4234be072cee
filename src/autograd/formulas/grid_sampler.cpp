// The derivative of grid_sampler's derivative: the sampler written as operations, which are differentiated twice.
#include "autograd/formulas/upsampling.h"
#include "core/kernel_arguments.h"
#include "mica/autograd.h"
#include "mica/ops.h"

namespace mica::formulas {

namespace {

enum : int64_t { kLinear, kNearest, kCubic };     // modes
enum : int64_t { kZeros, kBorder, kReflection };  // paddings

struct Axis {
  int64_t size, padding;
  bool align_corners;
};

// A position after it is brought into the image, and by how much it moves with the original one: 1, -1 or 0.
struct Padded {
  Tensor position, rate;
};

Padded padded(const Tensor& x, const Axis& axis) {
  const double last = static_cast<double>(axis.size - 1);
  Padded p{nan_to_num(x, -1.0), ones_like(x)};
  if (axis.padding == kZeros) return p;
  if (axis.padding == kReflection) {
    const double low = axis.align_corners ? 0 : -0.5, span = axis.align_corners ? last : last + 1;
    if (span == 0) return {zeros_like(x), zeros_like(x)};
    const Tensor offset = p.position - Scalar(low), distance = mica::abs(offset);
    const Tensor turns = floor(distance / Scalar(span)), rest = distance - turns * Scalar(span);
    const Tensor odd = remainder(turns, Scalar(2)).ne(Scalar(0));
    p.position = where(odd, Scalar(span) - rest, rest) + Scalar(low);
    p.rate = where(offset.lt(Scalar(0)).logical_xor(odd), -p.rate, p.rate);
  }
  const Tensor inside = p.position.gt(Scalar(0)).logical_and(p.position.lt(Scalar(last)));
  return {clamp(p.position, Scalar(0), Scalar(last)), p.rate * inside};
}

// The elements of an axis that points read, and their weights. A weight is 0 where there is no element.
struct Taps {
  TensorVec index, weight;

  void add(const Tensor& element, const Tensor& share, const Axis& axis) {
    const Scalar last(axis.size - 1);
    const Tensor exists = element.ge(Scalar(0)).logical_and(element.le(last));
    index.push_back(clamp(element, Scalar(0), last).to(DType::Int64));
    weight.push_back(share.defined() ? share * exists : exists.to(element.dtype()));
  }
};

Tensor cubic_near(const Tensor& x) {
  constexpr double a = -0.75;
  return (x * Scalar(a + 2) - Scalar(a + 3)) * x * x + Scalar(1);
}
Tensor cubic_far(const Tensor& x) {
  constexpr double a = -0.75;
  return ((x * Scalar(a) - Scalar(5 * a)) * x + Scalar(8 * a)) * x - Scalar(4 * a);
}

Taps taps_of(const Tensor& coordinate, const Axis& axis, int64_t mode) {
  const double n = static_cast<double>(axis.size);
  const Tensor x = axis.align_corners ? (coordinate + Scalar(1)) / Scalar(2) * Scalar(n - 1)
                                      : ((coordinate + Scalar(1)) * Scalar(n) - Scalar(1)) / Scalar(2);
  const Tensor still = x.detach();
  Taps taps;
  if (mode == kCubic) {
    const Tensor first = nan_to_num(floor(still), -2.0), t = x - first;
    const std::array<Tensor, 4> weights{cubic_far(t + Scalar(1)), cubic_near(t), cubic_near(Scalar(1) - t),
                                        cubic_far(Scalar(2) - t)};
    for (int64_t i = 0; i < 4; ++i) taps.add(padded(first + Scalar(i - 1), axis).position, weights[i], axis);
    return taps;
  }
  const Padded p = padded(still, axis);
  if (mode == kNearest) {
    taps.add(round(p.position), {}, axis);
    return taps;
  }
  const Tensor position = p.position + p.rate * (x - still), first = floor(p.position), t = position - first;
  taps.add(first, Scalar(1) - t, axis);
  taps.add(first + Scalar(1), t, axis);
  return taps;
}

// Images (samples, channels, ...) read at points whose last coordinate is that of the first spatial dimension.
Tensor sample_by_operations(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding,
                            bool align_corners) {
  const int64_t dims = input.dim() - 2, samples = input.size(0), channels = input.size(1);
  const Tensor flat = input.reshape({samples, channels, -1}), points = grid.reshape({samples, -1, dims});
  // For all combinations of the axes' taps: their places in `flat`, and the products of their weights.
  TensorVec places, weights;
  for (int64_t d = 0; d < dims; ++d) {
    const Axis axis{input.size(d + 2), padding, align_corners};
    const Taps taps = taps_of(points.select(2, dims - 1 - d), axis, mode);
    if (d == 0) {
      places = taps.index;
      weights = taps.weight;
      continue;
    }
    TensorVec more_places, more_weights;
    for (size_t i = 0; i < places.size(); ++i) {
      for (size_t j = 0; j < taps.index.size(); ++j) {
        more_places.push_back(places[i] * Scalar(axis.size) + taps.index[j]);
        more_weights.push_back(weights[i] * taps.weight[j]);
      }
    }
    places = more_places;
    weights = more_weights;
  }
  Tensor sum;
  for (size_t i = 0; i < places.size(); ++i) {
    const Tensor index = places[i].unsqueeze(1).expand({samples, channels, points.size(1)});
    const Tensor part = flat.gather(2, index) * weights[i].unsqueeze(1);
    sum = sum.defined() ? sum + part : part;
  }
  DimVector sizes{samples, channels};
  for (int64_t d = 1; d <= dims; ++d) sizes.push_back(grid.size(d));
  return sum.reshape(sizes);
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> grid_sampler_double_backward(const TensorVec& grads, const Tensor& grad_output,
                                                                const Tensor& input, const Tensor& grid,
                                                                int64_t interpolation_mode, int64_t padding_mode,
                                                                bool align_corners, bool input_wanted, bool grid_wanted,
                                                                const std::array<bool, 3>& wanted) {
  const bool create_graph = grad_enabled();
  const EnableGradGuard recording;
  const ModeGuard exact(mode_bit::kAutocast, false);
  // New tensors, so that the tensors from which points were computed get no gradient here.
  const auto own = [&](const Tensor& t) {
    return create_graph && t.requires_grad() ? t.view_as(t) : t.detach().requires_grad_(true);
  };
  const Tensor x = own(input), q = own(grid), g = own(grad_output);
  const bool narrow = is_narrow(input.dtype());
  const DType dtype = narrow ? DType::Float32 : input.dtype();
  const Tensor sampled =
      sample_by_operations(x.to(dtype), q.to(dtype), interpolation_mode, padding_mode, align_corners);
  const TensorVec first = autograd::grad({sampled.to(input.dtype())}, {x, q}, {g}, true, true, true);
  TensorVec outputs, output_grads;
  for (size_t i = 0; i < 2; ++i) {
    if (!(i == 0 ? input_wanted : grid_wanted) || !grads[i].defined() || !first[i].defined()) continue;
    if (!first[i].requires_grad()) continue;
    outputs.push_back(first[i]);
    output_grads.push_back(grads[i]);
  }
  if (outputs.empty()) return {};
  const TensorVec second = autograd::grad(outputs, {g, x, q}, output_grads, create_graph, create_graph, true);
  return {wanted[0] ? second[0] : Tensor(), wanted[1] ? second[1] : Tensor(), wanted[2] ? second[2] : Tensor()};
}

}  // namespace mica::formulas
