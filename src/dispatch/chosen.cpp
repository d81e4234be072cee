// Operations for which torch has several operators: chooses the one that a mode is handed.
#include <string>

#include "dispatch/lowered.h"
#include "mica/layers.h"

namespace mica::dispatch::lowered {

namespace {

bool has_corners(std::string_view mode) { return mode != "nearest" && mode != "nearest-exact"; }

std::string upsample_name(std::string_view mode, size_t dims, bool antialias) {
  if (mode == "nearest-exact") return cat("_upsample_nearest_exact", dims, "d");
  return cat(antialias ? "_" : "", "upsample_", mode, dims, "d", antialias ? "_aa" : "");
}

// A factor that follows from the sizes is not handed to the mode.
std::optional<double> factor(ArrayRef<double> scales, size_t i) {
  return i < scales.size() && scales[i] != 0 ? std::optional<double>(scales[i]) : std::nullopt;
}

}  // namespace

static Tensor normalized(const char* name, const Tensor& self, int64_t dim, std::optional<DType> dtype, bool recorded) {
  const bool half_to_float = false;
  const ModeGuard below(recorded ? mode_bit::kNoGrad : 0, true);
  const Tensor input = dtype ? self.to(*dtype) : self;
  return call_one(name, {input, dim, half_to_float}, recorded);
}

Tensor softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype, bool recorded) {
  return normalized("_softmax", self, dim, dtype, recorded);
}

Tensor log_softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype, bool recorded) {
  return normalized("_log_softmax", self, dim, dtype, recorded);
}

std::string pad_operator(IntArrayRef pad, std::string_view mode) {
  return cat(mode == "reflect" ? "reflection" : "replication", "_pad", pad.size() / 2, "d");
}

Tensor log_sigmoid(const Tensor& self, bool recorded) { return call("log_sigmoid_forward", {self}, 2, recorded)[0]; }

std::vector<Tensor> nll_loss_forward(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                                     int64_t ignore_index, bool recorded) {
  return call(self.dim() == 4 ? "nll_loss2d_forward" : "nll_loss_forward",
              {self, target, weight, reduction, ignore_index}, 2, recorded);
}

Tensor pad_edges(const Tensor& self, IntArrayRef pad, std::string_view mode, bool recorded) {
  if (mode == "circular") {  // torch has no operator for it
    const ModeGuard below(recorded ? mode_bit::kNoGrad : 0, true);
    const Aside aside;
    return _pad_edges(self, pad, mode);
  }
  return call_one(pad_operator(pad, mode).c_str(), {self, pad}, recorded);
}

Tensor upsample(const Tensor& self, IntArrayRef output_size, std::string_view mode, bool align_corners,
                ArrayRef<double> scales, bool antialias, bool recorded) {
  const std::string name = upsample_name(mode, output_size.size(), antialias);
  const auto a = factor(scales, 0), b = factor(scales, 1), c = factor(scales, 2);
  const char* text = name.c_str();
  switch (output_size.size() * 2 + has_corners(mode)) {
    case 2:
      return call_one(text, {self, output_size, a}, recorded);
    case 3:
      return call_one(text, {self, output_size, align_corners, a}, recorded);
    case 4:
      return call_one(text, {self, output_size, a, b}, recorded);
    case 5:
      return call_one(text, {self, output_size, align_corners, a, b}, recorded);
    case 6:
      return call_one(text, {self, output_size, a, b, c}, recorded);
    default:
      return call_one(text, {self, output_size, align_corners, a, b, c}, recorded);
  }
}

Tensor upsample_backward(const Tensor& grad, IntArrayRef output_size, IntArrayRef input_size, std::string_view mode,
                         bool align_corners, ArrayRef<double> scales, bool antialias, bool recorded) {
  const std::string name = upsample_name(mode, output_size.size(), antialias) + "_backward";
  const auto a = factor(scales, 0), b = factor(scales, 1), c = factor(scales, 2);
  const char* text = name.c_str();
  switch (output_size.size() * 2 + has_corners(mode)) {
    case 2:
      return call_one(text, {grad, output_size, input_size, a}, recorded);
    case 3:
      return call_one(text, {grad, output_size, input_size, align_corners, a}, recorded);
    case 4:
      return call_one(text, {grad, output_size, input_size, a, b}, recorded);
    case 5:
      return call_one(text, {grad, output_size, input_size, align_corners, a, b}, recorded);
    case 6:
      return call_one(text, {grad, output_size, input_size, a, b, c}, recorded);
    default:
      return call_one(text, {grad, output_size, input_size, align_corners, a, b, c}, recorded);
  }
}

std::vector<Tensor> grid_sampler_backward(const Tensor& grad_output, const Tensor& input, const Tensor& grid,
                                          int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
                                          bool input_wanted, bool grid_wanted, bool recorded) {
  const bool wanted[2] = {input_wanted, grid_wanted};
  return call(input.dim() == 4 ? "grid_sampler_2d_backward" : "grid_sampler_3d_backward",
              {grad_output, input, grid, interpolation_mode, padding_mode, align_corners, ArrayRef<bool>(wanted)}, 2,
              recorded);
}

}  // namespace mica::dispatch::lowered
