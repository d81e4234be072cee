// Sums of products of 8-bit and 4-bit integers, exact in 32 bits, with the machine's dot-product instructions. The
// functions for this machine are chosen once (dot_products.cpp).
#pragma once

#include <cstdint>

namespace mica::cpu {

constexpr int kDotColumns = 4;      // rows of weights that are multiplied together
constexpr int kDotRows = 4;         // rows of activations, at most
constexpr int64_t kInt4Chunk = 32;  // depths that are packed together: 16 bytes for each row of weights

struct DotProducts {
  // sums[i * 4 + j] = a[i] . b[j] over `depth` int8 numbers, for 1 to 4 rows of a (the index is the number of rows
  // less one) and 4 rows of b. No sum may leave 32 bits: depth is at most kMaxDotDepth.
  using Tile = void(const int8_t* const* a, const int8_t* const* b, int64_t depth, int32_t* sums);
  Tile* tile[kDotRows];

  // to[j] = sum over groups g of scales[g * 4 + j] * steps[g] * (256 high + low) . weights of row j in the group.
  // `weights` are chunks of 32 depths of 4 rows, each 16 bytes: the lower halves are the depths 0 to 15, the upper
  // ones 16 to 31. They are numbers from 0 to 15.
  using Int4Rows = void(const uint8_t* weights, const int8_t* high, const int8_t* low, int64_t groups,
                        int64_t chunks_per_group, const float* scales, const float* steps, float* to);
  Int4Rows* int4_rows;
};

constexpr int64_t kMaxDotDepth = 65536;  // 2^16 * 2^7 * 2^8 is the bound of x86's products of an unsigned number

const DotProducts& dot_products();

// The versions for one kind of machine, or null where it is another.
const DotProducts* neon_dot_products();  // aarch64 with sdot
const DotProducts* vnni_dot_products();  // x86-64 with AVX512_VNNI
const DotProducts* avx2_dot_products();  // x86-64

}  // namespace mica::cpu
