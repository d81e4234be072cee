// Numbers among operands of 16-bit floats. torch computes some functions with the number itself, not rounded to 16
// bits.
#pragma once

#include <cstring>

#include "mica/backend/pointwise_loop.h"

namespace mica::cpu {

inline bool is_short_float(DType t) { return t == DType::Float16 || t == DType::BFloat16; }

inline bool is_number(const PointwiseLoop& loop, int operand) { return loop.numbers >> operand & 1; }

// The exact value of an operand that is a number, in a loop over 16-bit floats. It stands eight bytes behind its
// element.
inline float exact_number(const PointwiseLoop& loop, int operand) {
  float number;
  std::memcpy(&number, loop.data[operand] + 8, sizeof(number));
  return number;
}

}  // namespace mica::cpu
