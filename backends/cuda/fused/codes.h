// The instructions of a fused loop, by name. Those of the first list are functions of one number from the CUDA library,
// with the names of their kernels' slots.
#pragma once

#include "mica/backend/fusion.h"

#define MICA_FUSED_FUNCTIONS(X) \
  X(exp)                        \
  X(exp2) X(expm1) X(log) X(log2) X(log1p) X(sin) X(cos) X(tanh) X(sqrt) X(rsqrt) X(erf) X(floor) X(ceil) X(trunc)

// Those of the second list have parameters, in this order: AddScaled: alpha, whether it is one; PowShort: a Shortcut;
// Compare: a set of relations; Addcmul and Addcdiv: the value; ThresholdBackward: the bound; LeakyRelu and its
// derivative: the slope; Gelu and its derivative: whether by tanh. Copy is also a conversion, by the result's dtype.
// Operands of Select are a, b and the condition; of SelectValue self, mask and value.
// clang-format off
#define MICA_FUSED_OPERATIONS(X) \
  X(Copy)                        \
  X(Round)                       \
  X(Abs)                         \
  X(Sign)                        \
  X(Neg)                         \
  X(Reciprocal)                  \
  X(AddScaled)                   \
  X(Mul)                         \
  X(Div)                         \
  X(Larger)                      \
  X(Smaller)                     \
  X(PowShort)                    \
  X(Pow)                         \
  X(Compare)                     \
  X(Select)                      \
  X(SelectValue)                 \
  X(Mask)                        \
  X(LogicalNot)                  \
  X(LogicalAnd)                  \
  X(LogicalOr)                   \
  X(Clamp)                       \
  X(Addcmul)                     \
  X(Addcdiv)                     \
  X(Relu)                        \
  X(Sigmoid)                     \
  X(SigmoidBackward)             \
  X(TanhBackward)                \
  X(ThresholdBackward)           \
  X(LeakyRelu)                   \
  X(LeakyReluBackward)           \
  X(Silu)                        \
  X(SiluBackward)                \
  X(Gelu)                        \
  X(GeluBackward)                \
  X(NarrowGelu)                  \
  X(NarrowGeluBackward)
// clang-format on

namespace mica::cuda {

enum class FusedCode : int16_t {
  Load = FusedInstruction::kLoad,
  Store = FusedInstruction::kStore,
#define MICA_CODE(name) name,
  MICA_FUSED_FUNCTIONS(MICA_CODE) MICA_FUSED_OPERATIONS(MICA_CODE)
#undef MICA_CODE
};

// The operation that an error names where the index of a store is wrong.
inline constexpr const char* kIndexedOperation = "index_put_";

const Fusion& fusion();

}  // namespace mica::cuda
