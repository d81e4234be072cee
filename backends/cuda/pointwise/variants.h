// Numbers that tell kernels which comparison or power they compute, so that they share their code.
#pragma once

#include <cstdint>

namespace mica::cuda {

// How two elements stand to each other: one of these, and a comparison is the set of those for which it holds.
enum Relation : uint32_t { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

// The exponents for which torch takes a shorter function.
enum class Shortcut { None, Square, Cube, Sqrt, Rsqrt, Reciprocal, InverseSquare };

inline Shortcut shortcut_of_exponent(double e) {
  return e == 2      ? Shortcut::Square
         : e == 3    ? Shortcut::Cube
         : e == 0.5  ? Shortcut::Sqrt
         : e == -0.5 ? Shortcut::Rsqrt
         : e == -1   ? Shortcut::Reciprocal
         : e == -2   ? Shortcut::InverseSquare
                     : Shortcut::None;
}

}  // namespace mica::cuda
