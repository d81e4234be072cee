// float32 products on the tile unit (AMX), which multiplies bfloat16: a float is the exact sum of three of them, and of
// the nine products of such parts the six largest carry all of a float's digits.
#pragma once

#include <cstdint>

#include "backends/cpu/gemm/product.h"

namespace mica::cpu {

inline constexpr int64_t kSplitBlock = 32;  // rows and columns of a product, and its unit of depth
inline constexpr int64_t kSplitPart = kSplitBlock * kSplitBlock;  // bfloat16 of one part of one unit of depth

// Operands are `units` of depth, each with its parts from the largest to the smallest. Within a unit depth d and d + 16
// form a pair. A's part: 32 rows of 16 pairs; B's part: 16 rows of 32 pairs, one per column.
bool has_split_tiles();
// c = or += a @ b, 32 x 32, of three parts each. Within a SplitTilesScope.
void multiply_split_tiles(const uint16_t* a, const uint16_t* b, int64_t units, float* c, int64_t c_stride,
                          bool accumulate);
// The same where A has two parts and B, which is bfloat16 itself, has one.
void multiply_two_by_one(const uint16_t* a, const uint16_t* b, int64_t units, float* c, int64_t c_stride,
                         bool accumulate);

// The tile unit, configured for the calling thread.
class SplitTilesScope {
 public:
  SplitTilesScope() { gemm_impl::bfloat16_kernel()->format.enter(); }
  ~SplitTilesScope() { gemm_impl::bfloat16_kernel()->format.leave(); }
  SplitTilesScope(const SplitTilesScope&) = delete;
  SplitTilesScope& operator=(const SplitTilesScope&) = delete;
};

}  // namespace mica::cpu
