// Stacked recurrent layers by a library of the backend (mica/backend/recurrent_library.h).
#pragma once

#include <optional>

#include "mica/tensor.h"
#include "recurrent/unrolled_recurrent.h"

namespace mica {

struct RecurrentLayers {
  int64_t mode;
  TensorList parameters;  // those of each layer and direction, one after the other
  bool has_biases, has_projection;
  int64_t layers, directions;
};

// The result, with hy and cy of all layers and directions. Nothing where no library takes the layers, or where an
// argument does not fit the others; the caller reports that.
std::optional<RecurrentResult> run_recurrent_library(const RecurrentLayers& layers, const Tensor& data,
                                                     IntArrayRef batch_sizes, const Tensor& hx, const Tensor& cx);

}  // namespace mica
