// Dot products of aarch64: sdot adds four products of 8-bit integers to each of four 32-bit sums.
#include "backends/cpu/quantized/dot_products.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>

namespace mica::cpu {

namespace {

#define MICA_SDOT [[gnu::target("arch=armv8.2-a+dotprod")]]

// The sums of the lanes of four vectors, in order.
MICA_SDOT inline int32x4_t lane_sums(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

template <int kRows>
MICA_SDOT void tile_sdot(const int8_t* const* a, const int8_t* const* b, int64_t depth, int32_t* sums) {
  int32x4_t sum[kRows][kDotColumns];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kDotColumns; ++j) sum[i][j] = vdupq_n_s32(0);
  int64_t k = 0;
  for (; k + 16 <= depth; k += 16) {
    int8x16_t left[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) left[i] = vld1q_s8(a[i] + k);
#pragma GCC unroll 4
    for (int j = 0; j < kDotColumns; ++j) {
      const int8x16_t right = vld1q_s8(b[j] + k);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sum[i][j] = vdotq_s32(sum[i][j], left[i], right);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
    vst1q_s32(sums + i * kDotColumns, lane_sums(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
  for (; k < depth; ++k)
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kDotColumns; ++j)
        sums[i * kDotColumns + j] += static_cast<int32_t>(a[i][k]) * static_cast<int32_t>(b[j][k]);
}

constexpr DotProducts kNeon{{tile_sdot<1>, tile_sdot<2>, tile_sdot<3>, tile_sdot<4>}};

}  // namespace

const DotProducts* neon_dot_products() {
  constexpr unsigned long kHasDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  return getauxval(AT_HWCAP) & kHasDotProduct ? &kNeon : nullptr;
}

}  // namespace mica::cpu

#else

namespace mica::cpu {
const DotProducts* neon_dot_products() { return nullptr; }
}  // namespace mica::cpu

#endif
