// How losses say what becomes of their elements, by name in nn.functional and by torch's numbers below.
#pragma once

#include <optional>
#include <string_view>

#include "mica/backend/pair_loss.h"
#include "mica/ops.h"

namespace mica::composite {

int64_t reduction_of(std::string_view name);
// The flags of old prevail where one is given, with a warning.
int64_t reduction_of(std::optional<bool> size_average, std::optional<bool> reduce, std::string_view name);

inline Tensor reduced(const Tensor& elements, int64_t reduction) {
  return reduction == kMean ? mean(elements) : reduction == kSum ? sum(elements) : elements;
}

}  // namespace mica::composite
