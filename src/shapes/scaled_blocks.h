// Matrices in blocks of small floats, each block with a scale of its own: the MX formats (blocks of 32 numbers, scales
// of float8_e8m0fnu) and NVFP4 (blocks of 16 numbers, scales of float8_e4m3fn).
#pragma once

#include "mica/tensor.h"

namespace mica::shapes {

// How the scales of a matrix lie in memory. The numbers are those of torch.nn.functional.SwizzleType.
enum class Swizzle { None = 0, Tiles32x4x4 = 1 };

// How many scales a matrix of outer x inner numbers has: in tiles, rows fill up to 128 and scales of a row to 4.
int64_t count_block_scales(int64_t outer, int64_t inner, int64_t block, Swizzle swizzle);

// The numbers of `rows` in float32, each multiplied by its block's scale. Float4 comes as pairs, so that the result has
// twice the columns. `scales` is contiguous and has as many elements as count_block_scales says.
Tensor decode_blocks(const Tensor& rows, const Tensor& scales, int64_t block, Swizzle swizzle);

}  // namespace mica::shapes
