// Arithmetic of sizes, with Python's rules.
#pragma once

#include "program/call.h"

namespace mica::program {

enum class Arithmetic : uint8_t {
  Add,
  Sub,
  Mul,
  FloorDiv,
  TrueDiv,
  Mod,
  Pow,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  And,
  Or,
  Max,
  Min
};

// Computes with numbers that are not complex. Throws where a whole number would leave int64, and for a division by
// zero.
Scalar compute(Arithmetic what, const Scalar& a, const Scalar& b);

}  // namespace mica::program
