// Reductions of losses: names in nn.functional, torch's numbers below it.
#pragma once

#include <optional>
#include <string_view>

#include "mica/backend/pair_loss.h"
#include "mica/ops.h"

namespace mica::composite {

int64_t reduction_of(std::string_view name);
// The old flags size_average and reduce win where one of them is given, with a warning.
int64_t reduction_of(std::optional<bool> size_average, std::optional<bool> reduce, std::string_view name);

inline Tensor reduced(const Tensor& elements, int64_t reduction) {
  return reduction == kMean ? mean(elements) : reduction == kSum ? sum(elements) : elements;
}

}  // namespace mica::composite
