// The labels of a batch for the CTC loss, in whichever of its two layouts they come.
#pragma once

#include <vector>

#include "mica/tensor.h"

namespace mica::shapes {

struct CtcTargets {
  CtcTargets(const Tensor& targets, IntArrayRef lengths);
  Tensor flat;                  // int64, contiguous
  std::vector<int64_t> begins;  // where the labels of each sample start in it
};

}  // namespace mica::shapes
