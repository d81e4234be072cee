// What the initial values of parameters are computed from. The functions that fill tensors are operations:
// mica/layers.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "mica/tensor.h"

namespace mica {

// The factor by which weights before a nonlinearity have to be larger to make up for it; `param` is the slope of a
// leaky_relu. Throws for an unknown name.
double calculate_gain(std::string_view nonlinearity, std::optional<double> param = std::nullopt);

struct Fans {
  int64_t in, out;
};

// How many numbers go into each output of a weight, and how many each input goes into.
Fans calculate_fans(const Tensor& weight);

}  // namespace mica
