// Rows of activations as planes of 8-bit integers, so that their products with integers are the machine's dot products
// of bytes. Each group of a row has a step of its own.
#pragma once

#include <cstdint>

#include "backends/cpu/scratch.h"
#include "mica/dtype.h"

namespace mica::cpu {

constexpr int kMostPlanes = 3;
constexpr int kPlaneBase = 254;

// With 3 planes p, q, s an activation is (254 * 254 * p + 254 * q + s) * step, each number from -127 to 127. One plane
// holds 7 bits and a sign, two hold 15, three hold float32's 24.
struct SplitRows {
  SplitRows(const void* from, DType dtype, int64_t rows, int64_t depth, int64_t group, int planes);

  const int8_t* plane(int p) const { return numbers.data() + p * plane_size; }
  const int32_t* sums(int p) const { return plane_sums.data() + p * rows * groups; }

  int64_t rows, depth, groups, plane_size;
  Scratch<int8_t> numbers;      // [planes][rows][depth]
  Scratch<float> steps;         // [rows][groups]
  Scratch<float> group_sums;    // [rows][groups], of the rounded activations
  Scratch<int32_t> plane_sums;  // [planes][rows][groups]
  Scratch<bool> has_steps;      // [rows]: false for infinities, NaN and numbers too small for a step
};

}  // namespace mica::cpu
