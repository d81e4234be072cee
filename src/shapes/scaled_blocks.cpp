#include "shapes/scaled_blocks.h"

#include "mica/ops.h"
#include "mica/values.h"

namespace mica::shapes {

namespace {

constexpr int64_t kTileRows = 128, kTileScales = 4;  // the size of a tile of swizzled scales

int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

// Pairs of 4-bit floats (rows, n) as float32 (rows, 2 n); the first of a pair is the lower half of its byte.
Tensor unpack_pairs(const Tensor& pairs) {
  const Tensor bytes = pairs.contiguous().view(DType::UInt8).to(DType::Int32);
  float values[16];
  for (uint8_t code = 0; code < 16; ++code) values[code] = float4_e2m1fn_to_float(code);
  const Tensor table = from_blob(values, {16}, TensorOptions(DType::Float32)).clone().to(TensorOptions(pairs.device()));
  const Tensor codes = mica::stack({bytes.bitwise_and(Scalar(15)), bytes.bitwise_right_shift(Scalar(4))}, -1);
  return table.index_select(0, codes.flatten()).reshape({pairs.size(0), 2 * pairs.size(1)});
}

// The scales as a matrix (outer, blocks). Within a tile, row r is found at [r % 32][r / 32].
Tensor in_rows(const Tensor& scales, int64_t outer, int64_t blocks, Swizzle swizzle) {
  if (swizzle == Swizzle::None) return scales.reshape({outer, blocks});
  const int64_t down = pieces(outer, kTileRows), across = pieces(blocks, kTileScales);
  return scales.reshape({down, across, 32, 4, kTileScales})
      .permute({0, 3, 2, 1, 4})
      .reshape({down * kTileRows, across * kTileScales})
      .narrow(0, 0, outer)
      .narrow(1, 0, blocks);
}

}  // namespace

int64_t count_block_scales(int64_t outer, int64_t inner, int64_t block, Swizzle swizzle) {
  const int64_t blocks = pieces(inner, block);
  if (swizzle == Swizzle::None) return outer * blocks;
  return pieces(outer, kTileRows) * kTileRows * pieces(blocks, kTileScales) * kTileScales;
}

Tensor decode_blocks(const Tensor& rows, const Tensor& scales, int64_t block, Swizzle swizzle) {
  const Tensor numbers = rows.dtype() == DType::Float4_e2m1fn_x2 ? unpack_pairs(rows) : rows.to(DType::Float32);
  const int64_t outer = numbers.size(0), inner = numbers.size(1);
  const Tensor factors = in_rows(scales, outer, pieces(inner, block), swizzle).to(DType::Float32);
  return numbers.mul(factors.repeat_interleave(block, 1).narrow(1, 0, inner));
}

}  // namespace mica::shapes
