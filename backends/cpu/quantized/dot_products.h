// Sums of products of 8-bit integers, exact in 32 bits, with the machine's dot-product instructions. The
// functions for this machine are chosen once (dot_products.cpp).
#pragma once

#include <cstdint>

namespace mica::cpu {

constexpr int kDotColumns = 4;  // rows of weights that are multiplied together
constexpr int kDotRows = 4;     // rows of activations, at most

struct DotProducts {
  // sums[i * 4 + j] = a[i] . b[j] over `depth` int8 numbers, for 1 to 4 rows of a (the index is the number of rows
  // less one) and 4 rows of b. No sum may leave 32 bits: depth is at most kMaxDotDepth.
  using Tile = void(const int8_t* const* a, const int8_t* const* b, int64_t depth, int32_t* sums);
  Tile* tile[kDotRows];
};

constexpr int64_t kMaxDotDepth = 65536;  // 2^16 * 2^7 * 2^8 is the bound of x86's products of an unsigned number

const DotProducts& dot_products();

// The versions for one kind of machine, or null where it is another.
const DotProducts* neon_dot_products();  // aarch64 with sdot
const DotProducts* vnni_dot_products();  // x86-64 with AVX512_VNNI
const DotProducts* avx2_dot_products();  // x86-64

}  // namespace mica::cpu
