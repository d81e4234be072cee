// Dot products of x86-64: vpdpbusd (AVX512_VNNI) adds four products of an unsigned and a signed 8-bit integer to each
// 32-bit sum. Signed numbers are made unsigned by adding 128, which is taken out again with the sums of the other side.
// AVX2 has no such instruction: there 8-bit numbers are widened to 16 bits, of which pairs are multiplied and added.
#include "backends/cpu/quantized/dot_products.h"
#include "backends/cpu/target.h"

#if defined(__x86_64__)
// GCC 12 warns of the undefined vectors with which its own AVX-512 intrinsics start.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

namespace mica::cpu {

namespace {

#define MICA_VNNI __attribute__((target("fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define MICA_AVX2 __attribute__((target("avx2,fma")))

// ---- AVX512_VNNI

template <int kRows>
MICA_VNNI void tile_vnni(const int8_t* const* a, const int8_t* const* b, int64_t depth, int32_t* sums) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80)), one = _mm512_set1_epi8(1);
  __m512i sum[kRows][kDotColumns], of_b[kDotColumns];
#pragma GCC unroll 4
  for (int j = 0; j < kDotColumns; ++j) {
    of_b[j] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sum[i][j] = _mm512_setzero_si512();
  }
  for (int64_t k = 0; k < depth; k += 64) {
    // Beyond the end b is zero, so the unsigned side may be anything there.
    const __mmask64 here = depth - k >= 64 ? ~__mmask64{0} : (__mmask64{1} << (depth - k)) - 1;
    __m512i left[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) left[i] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(here, a[i] + k), flip);
#pragma GCC unroll 4
    for (int j = 0; j < kDotColumns; ++j) {
      const __m512i right = _mm512_maskz_loadu_epi8(here, b[j] + k);
      of_b[j] = _mm512_dpbusd_epi32(of_b[j], one, right);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], left[i], right);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kDotColumns; ++j) {
    const int32_t added = 128 * _mm512_reduce_add_epi32(of_b[j]);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sums[i * kDotColumns + j] = _mm512_reduce_add_epi32(sum[i][j]) - added;
  }
}

// ---- AVX2

MICA_AVX2 inline int32_t lane_sum(__m256i v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

MICA_AVX2 inline __m256i widened(const int8_t* from) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

template <int kRows>
MICA_AVX2 void tile_avx2(const int8_t* const* a, const int8_t* const* b, int64_t depth, int32_t* sums) {
  // Two columns at a time: the sums of four would not stay in the 16 registers.
  for (int half = 0; half < kDotColumns; half += 2) {
    __m256i sum[kRows][2];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    int64_t k = 0;
    for (; k + 16 <= depth; k += 16) {
      const __m256i right0 = widened(b[half] + k), right1 = widened(b[half + 1] + k);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const __m256i left = widened(a[i] + k);
        sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(left, right0));
        sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(left, right1));
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < 2; ++j) {
        int32_t total = lane_sum(sum[i][j]);
        for (int64_t rest = k; rest < depth; ++rest)
          total += static_cast<int32_t>(a[i][rest]) * static_cast<int32_t>(b[half + j][rest]);
        sums[i * kDotColumns + half + j] = total;
      }
  }
}

constexpr DotProducts kVnni{{tile_vnni<1>, tile_vnni<2>, tile_vnni<3>, tile_vnni<4>}};
constexpr DotProducts kAvx2{{tile_avx2<1>, tile_avx2<2>, tile_avx2<3>, tile_avx2<4>}};

}  // namespace

const DotProducts* vnni_dot_products() {
  const bool there = may_use_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return there ? &kVnni : nullptr;
}

const DotProducts* avx2_dot_products() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kAvx2 : nullptr;
}

}  // namespace mica::cpu

#else

namespace mica::cpu {
const DotProducts* vnni_dot_products() { return nullptr; }
const DotProducts* avx2_dot_products() { return nullptr; }
}  // namespace mica::cpu

#endif
