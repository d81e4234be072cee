// Linear maps with weights of 4 and 8 bits on the CPU. Activations have gradients, the weights have none.
#pragma once

#include <string>

#include "mica/tensor.h"

namespace mica {

// A matrix [n, k] of int32 numbers from 0 to 15 as bytes [n, k / 2], in the order that int4_mm reads them. n is a
// multiple of 16, k is even.
Tensor int4_pack(const Tensor& weight);

// self @ w^T of float32, bfloat16 or float16 rows, where w = (weight - 8) * scale + zero; scales_and_zeros [k / group,
// n, 2] holds a pair for each group of 32, 64, 128 or 256 numbers of a row.
Tensor int4_mm(const Tensor& self, const Tensor& packed, int64_t group, const Tensor& scales_and_zeros);

// A matrix [rows, columns] in blocks, as files of the GGUF format have it: its bytes, and the same numbers packed for
// products. These are numbers of 4 or 8 bits, uint8 [rows rounded up to 16, columns or half of them], and a scale for
// each group, float16 or float32 [rows / 16, columns / group, 16], or [.., 2] with the number that is added.
struct BlockWeight {
  std::string type;  // "Q4_0", "Q8_0", "Q4_K" or "Q6_K"
  Tensor bytes, numbers, scales;
  int64_t rows = 0, columns = 0, group = 0;
};

// `bytes` are uint8, block after block and row after row. They are kept: they may be a mapped file's.
BlockWeight pack_blocks(const std::string& type, const Tensor& bytes, int64_t rows, int64_t columns);

// x @ weight^T over the last dimension of float32, bfloat16 or float16 numbers. The numbers of each group of x are
// rounded to 8 bits, as in llama.cpp.
Tensor block_linear(const Tensor& x, const BlockWeight& weight);

// Rows of the weight as float32 numbers: [..., columns] for indices [...].
Tensor block_rows(const BlockWeight& weight, const Tensor& indices);

}  // namespace mica
