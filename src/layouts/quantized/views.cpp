// Views of quantized tensors. A quantizer of the whole tensor goes with every view. A quantizer per channel is found by
// where the view's elements lie, or by the operation where a dimension of size one comes or goes.
#include <algorithm>
#include <numeric>

#include "core/allocate.h"
#include "core/geometry.h"
#include "layouts/quantized/parts.h"
#include "mica/generated/layouts/quantized.h"
#include "mica/ops.h"

namespace mica {
namespace {

using Steps = DimVector;

// Splits a distance in memory into steps along the dimensions of `t`, whose elements share no memory. False where that
// is impossible.
bool steps_of(int64_t distance, const TensorView& t, Steps& steps) {
  DimVector order(static_cast<size_t>(t.ndim));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return t.strides[a] > t.strides[b]; });
  steps = DimVector(static_cast<size_t>(t.ndim));
  for (const int64_t d : order) {
    if (t.sizes[d] == 1) continue;
    if (t.strides[d] <= 0) return false;
    steps[static_cast<size_t>(d)] = distance / t.strides[d];
    distance %= t.strides[d];
  }
  return distance == 0;
}

// The channels of a view: along `dim`, every `step`th from `first` on. dim is -1 where they lie along none.
struct Channels {
  int64_t first = 0, step = 1;
  int dim = -1;
};

// Finds the channels of a view that is a box of elements of `from`, which lie along at most one dimension. False where
// the view is not such a box.
bool channels_of(const TensorView& view, int64_t distance, const TensorView& from, int64_t axis, Channels& found) {
  Steps first, last, step;
  if (distance < 0 || !steps_of(distance, from, first)) return false;
  last = first;
  found.first = first[static_cast<size_t>(axis)];
  for (int d = 0; d < view.ndim; ++d) {
    if (view.sizes[d] <= 1) continue;
    if (view.strides[d] < 0 || !steps_of(view.strides[d], from, step)) return false;
    for (int f = 0; f < from.ndim; ++f)
      last[static_cast<size_t>(f)] += step[static_cast<size_t>(f)] * (view.sizes[d] - 1);
    if (step[static_cast<size_t>(axis)] == 0) continue;
    if (found.dim >= 0) return false;
    found.dim = d;
    found.step = step[static_cast<size_t>(axis)];
  }
  for (int f = 0; f < from.ndim; ++f)
    if (last[static_cast<size_t>(f)] >= from.sizes[f]) return false;
  return true;
}

// The quantizer with its channels along another dimension.
std::shared_ptr<const Quantizer> moved(const Quantizer& quantizer, int64_t axis) {
  auto made = std::make_shared<Quantizer>(quantizer);
  made->axis = axis;
  return made;
}

// The bare integers in another shape, with the channels along another dimension.
Tensor reshaped(const Tensor& self, IntArrayRef sizes, IntArrayRef strides, int64_t axis) {
  return attach_quantizer(make_view_as(self, self.dtype(), sizes, strides, self.storage_offset()),
                          moved(quantizer_of(self), axis));
}

Tensor squeezed(const Tensor& self, int64_t dim, bool all) {
  const Quantizer& q = quantizer_of(self);
  DimVector sizes, strides;
  int64_t axis = q.axis;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (self.size(d) == 1 && (all || d == dim)) {
      MICA_CHECK(d != q.axis, "Squeeze is only possible on non-axis dimension for Per-Channel Quantized Tensors.");
      if (d < q.axis) --axis;
      continue;
    }
    sizes.push_back(self.size(d));
    strides.push_back(self.stride(d));
  }
  return reshaped(self, sizes, strides, axis);
}

}  // namespace

std::shared_ptr<const Quantizer> quantizer_of_view(const TensorImpl& view, const TensorImpl& from,
                                                   const std::shared_ptr<const Quantizer>& quantizer) {
  const TensorView &to = view.view, &base = from.view;
  const int64_t axis = quantizer->axis, channels = base.sizes[axis], distance = view.offset - from.offset;
  const bool same_axis = to.ndim == base.ndim && to.sizes[axis] == channels;
  if (same_axis && to.strides[axis] == base.strides[axis] && distance == 0) return quantizer;
  if (channels == 1 && same_axis) return quantizer;
  Channels found;
  // torch moves channels with select, slice and views only; a transposed tensor would have them along another
  // dimension.
  MICA_CHECK_KIND(channels_of(to, distance, base, axis, found) && found.dim <= axis &&
                      (found.dim < 0 || found.dim == axis || to.ndim < base.ndim),
                  NotImplemented,
                  "Setting strides is possible only on uniformly quantized tensor: the view of a tensor "
                  "that is quantized per channel keeps its channels along one dimension. dequantize() it, or take the "
                  "view of its int_repr()");
  if (found.dim < 0) {  // the view has one channel
    MICA_CHECK_KIND(!quantizer->float_zero_points, NotImplemented, "a view of one channel whose zero point is a real ",
                    "number is not there: dequantize() the tensor first");
    auto one = std::make_shared<Quantizer>();
    one->scale = quantizer->scales.select(0, found.first).item<double>();
    one->zero_point = quantizer->zero_points.select(0, found.first).item<int64_t>();
    return one;
  }
  auto some = std::make_shared<Quantizer>(*quantizer);
  const int64_t count = to.sizes[found.dim];
  const auto of_view = [&](const Tensor& all) { return all.as_strided({count}, {found.step}, found.first); };
  some->scales = of_view(quantizer->scales.contiguous()).clone();
  some->zero_points = of_view(quantizer->zero_points.contiguous()).clone();
  some->axis = found.dim;
  return some;
}

namespace layouts::quantized {

Tensor _unsafe_view(const Tensor& self, IntArrayRef size) { return self.view(size); }

Tensor unsqueeze(const Tensor& self, int64_t dim) {
  const int64_t at = wrap_dim(dim, self.dim() + 1), axis = quantizer_of(self).axis;
  DimVector sizes(self.sizes()), strides(self.strides());
  const int64_t stride = at < self.dim() ? self.size(at) * self.stride(at) : 1;
  sizes.insert(static_cast<size_t>(at), 1);
  strides.insert(static_cast<size_t>(at), stride);
  return reshaped(self, sizes, strides, axis < 0 ? axis : axis + (at <= axis ? 1 : 0));
}

Tensor squeeze(const Tensor& self) { return squeezed(self, 0, true); }
Tensor squeeze_dim(const Tensor& self, int64_t dim) { return squeezed(self, wrap_dim(dim, self.dim()), false); }

}  // namespace layouts::quantized
}  // namespace mica
