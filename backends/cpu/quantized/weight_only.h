// Products of real activations with weights of 8 or 4 bits, for the memory of the CPU alone: the packed form of weights
// is its own, as torch's `..._for_cpu` says by name, so that these are functions and no slots of the table.
#pragma once

#include "mica/backend/kernel_types.h"

// Not in mica::cpu, which has the name of a function of tensors.
namespace mica::cpu_products {

// All tensors are contiguous. Scales are floats of any width.
// out[m, n] float32 = self[m, k] float32 @ weights[n, k]^T int8 * scales[n]
void int8_weight_mm(const TensorView& out, const TensorView& self, const TensorView& weights, const TensorView& scales);
// out[n, k / 2] uint8: the numbers from 0 to 15 of self[n, k] int32, in the order that int4_mm reads; n is a multiple
// of 4
void int4_pack(const TensorView& out, const TensorView& self);
// out[m, n] float32 = self[m, k] float32 @ ((weights - 8) * scale + zero)^T, a pair (scales_and_zeros[g, n, 2]) for
// each group of depths of a row
void int4_mm(const TensorView& out, const TensorView& self, const TensorView& weights,
             const TensorView& scales_and_zeros, int64_t group);

}  // namespace mica::cpu_products
