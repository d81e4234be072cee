#include "autograd/formulas/upsampling.h"

#include "autograd/formulas/formulas.h"
#include "autograd/formulas/seen.h"
#include "dispatch/lowered.h"
#include "mica/generated/layers/upsampling.h"
#include "mica/ops.h"
#include "shapes/volume.h"

namespace mica::formulas {

Tensor upsample_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, std::string_view mode,
                         bool align_corners, bool antialias, ArrayRef<double> scales) {
  const bool last = shapes::prefers_channels_last(sizes, strides, static_cast<int64_t>(sizes.size()) - 2);
  return _upsample_backward(grad, sizes, mode, align_corners, antialias, scales, last);
}

Tensor upsample_again(const Tensor& grad, IntArrayRef output_sizes, std::string_view mode, bool align_corners,
                      bool antialias, ArrayRef<double> scales) {
  return _upsample(grad, output_sizes.slice(2, output_sizes.size() - 2), mode, align_corners, antialias, scales);
}

Tensor pad_edges_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, const Tensor& self,
                          IntArrayRef pad, std::string_view mode) {
  const bool last = shapes::prefers_channels_last(sizes, strides, static_cast<int64_t>(pad.size()) / 2);
  if (self.defined() && is_seen() && mode != "circular") {
    const DimVector own(sizes), borders(pad);
    const std::string kind(mode), name = dispatch::lowered::pad_operator(pad, mode) + "_backward";
    return seen_one(name.c_str(), {grad, self, pad}, {grad}, [=](const TensorVec& t) -> TensorVec {
      return {_pad_edges_backward(t[0], own, borders, kind, last)};
    });
  }
  return _pad_edges_backward(grad, sizes, pad, mode, last);
}

std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& grad, const Tensor& input, const Tensor& grid,
                                                 int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
                                                 const std::array<bool, 2>& wanted) {
  auto [for_input, for_grid] =
      _grid_sampler_backward(grad, input, grid, interpolation_mode, padding_mode, align_corners, wanted[0], wanted[1]);
  return {wanted[0] ? for_input : Tensor(), wanted[1] ? for_grid : Tensor()};
}

}  // namespace mica::formulas
