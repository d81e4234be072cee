// Linear maps with weights of 4 bits, for inference on the CPU: a byte holds two of them.
#pragma once

#include "mica/tensor.h"

namespace mica {

// A matrix [n, k] of int32 numbers from 0 to 15 as bytes [n, k / 2], in the order that int4_mm reads them. n is a
// multiple of 16, k is even.
Tensor int4_pack(const Tensor& weight);

// self @ w^T of float32, bfloat16 or float16 rows, where w = (weight - 8) * scale + zero; scales_and_zeros [k / group,
// n, 2] holds a pair for each group of 32, 64, 128 or 256 numbers of a row. Not differentiable.
Tensor int4_mm(const Tensor& self, const Tensor& packed, int64_t group, const Tensor& scales_and_zeros);

}  // namespace mica
