// What a fused loop can compute: the names of its instructions. Those of the first list are functions of one number by
// the CUDA library, of the same name as their kernel's slot.
#pragma once

#include "mica/backend/fusion.h"

#define MICA_FUSED_FUNCTIONS(X) \
  X(exp)                        \
  X(exp2) X(expm1) X(log) X(log2) X(log1p) X(sin) X(cos) X(tanh) X(sqrt) X(rsqrt) X(erf) X(floor) X(ceil) X(trunc)

namespace mica::cuda {

enum class FusedCode : int16_t {
  Load = FusedInstruction::kLoad,
  Store = FusedInstruction::kStore,
#define MICA_CODE(name) name,
  MICA_FUSED_FUNCTIONS(MICA_CODE)
#undef MICA_CODE
      Copy,  // also a conversion, by the result's dtype
  Round,
  Abs,
  Sign,
  Neg,
  Reciprocal,
  AddScaled,  // parameters: alpha, whether it is one
  Mul,
  Div,
  Larger,
  Smaller,
  PowShort,  // parameter: a Shortcut
  Pow,
  Compare,      // parameter: a set of relations
  Select,       // a, b, condition
  SelectValue,  // self, mask, value
  Mask,
  LogicalNot,
  LogicalAnd,
  LogicalOr,
  Clamp,
  Addcmul,  // parameter: value
  Addcdiv,
  Relu,
  Sigmoid,
  SigmoidBackward,
  TanhBackward,
  ThresholdBackward,  // parameter: the bound
  LeakyRelu,          // parameter: the slope
  LeakyReluBackward,
  Silu,
  SiluBackward,
  Gelu,  // parameter: by tanh
  GeluBackward,
  NarrowGelu,
  NarrowGeluBackward,
};

const Fusion& fusion();

}  // namespace mica::cuda
