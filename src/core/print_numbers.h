// Numbers of one tensor as texts of one style.
#pragma once

#include <string>
#include <vector>

#include "mica/print.h"

namespace mica {

struct Cells {
  std::vector<std::string> texts;  // padded on the left, so that columns align
  int64_t width = 0;               // the width of a cell, by which rows are broken
};

Cells format_numbers(const std::vector<Scalar>& values, DType dtype, const PrintOptions& options);

}  // namespace mica
