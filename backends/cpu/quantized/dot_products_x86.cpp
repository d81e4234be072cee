// Dot products of x86-64: vpdpbusd (AVX512_VNNI) adds four products of an unsigned and a signed 8-bit integer to each
// 32-bit sum. Signed numbers are made unsigned by adding 128, which is taken out again with the sums of the other side.
// AVX2 has no such instruction: there 8-bit numbers are widened to 16 bits, of which pairs are multiplied and added.
#include "backends/cpu/quantized/dot_products.h"
#include "backends/cpu/target.h"

#if defined(__x86_64__)
// GCC 12 sees the undefined vectors that its own AVX-512 intrinsics start from.
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
    // Beyond the end b is zero, so that it does not matter what the unsigned side is there.
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

MICA_VNNI inline __m512i in_all_quarters(const int8_t* from) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// The sums of the lanes of each quarter, in order.
MICA_VNNI inline __m128i quarter_sums(__m512i v) {
  v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(0x4e)));
  v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(0xb1)));
  const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  return _mm512_castsi512_si128(_mm512_permutexvar_epi32(places, v));
}

MICA_VNNI void int4_rows_vnni(const uint8_t* weights, const int8_t* high, const int8_t* low, int64_t groups,
                              int64_t chunks_per_group, const float* scales, const float* steps, float* to) {
  const __m512i mask = _mm512_set1_epi8(15);
  __m128 total = _mm_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    __m512i upper = _mm512_setzero_si512(), lower = upper;  // sums with the high and low bytes of the activations
    for (int64_t c = 0; c < chunks_per_group; ++c) {
      const __m512i both = _mm512_loadu_si512(weights);
      const __m512i first = _mm512_and_si512(both, mask), second = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
      upper = _mm512_dpbusd_epi32(upper, first, in_all_quarters(high));
      upper = _mm512_dpbusd_epi32(upper, second, in_all_quarters(high + 16));
      lower = _mm512_dpbusd_epi32(lower, first, in_all_quarters(low));
      lower = _mm512_dpbusd_epi32(lower, second, in_all_quarters(low + 16));
      weights += 16 * kDotColumns, high += kInt4Chunk, low += kInt4Chunk;
    }
    const __m128i sums = quarter_sums(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower));
    const __m128 factors = _mm_mul_ps(_mm_loadu_ps(scales + g * kDotColumns), _mm_set1_ps(steps[g]));
    total = _mm_fmadd_ps(_mm_cvtepi32_ps(sums), factors, total);
  }
  _mm_storeu_ps(to, total);
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

MICA_AVX2 inline __m256i in_both_halves(const int8_t* from) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Adds products of numbers from 0 to 15 and signed bytes: a pair of them stays within 16 bits.
MICA_AVX2 inline __m256i add_products(__m256i sum, __m256i small, __m256i bytes) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(small, bytes), _mm256_set1_epi16(1)));
}

MICA_AVX2 void int4_rows_avx2(const uint8_t* weights, const int8_t* high, const int8_t* low, int64_t groups,
                              int64_t chunks_per_group, const float* scales, const float* steps, float* to) {
  const __m256i mask = _mm256_set1_epi8(15);
  __m128 total = _mm_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    __m256i upper[2], lower[2];  // of rows 0 and 1, of rows 2 and 3
    upper[0] = upper[1] = lower[0] = lower[1] = _mm256_setzero_si256();
    for (int64_t c = 0; c < chunks_per_group; ++c) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 32 * j));
        const __m256i first = _mm256_and_si256(both, mask), second = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
        upper[j] = add_products(upper[j], first, in_both_halves(high));
        upper[j] = add_products(upper[j], second, in_both_halves(high + 16));
        lower[j] = add_products(lower[j], first, in_both_halves(low));
        lower[j] = add_products(lower[j], second, in_both_halves(low + 16));
      }
      weights += 16 * kDotColumns, high += kInt4Chunk, low += kInt4Chunk;
    }
    const __m256i rows01 = _mm256_add_epi32(_mm256_slli_epi32(upper[0], 8), lower[0]);
    const __m256i rows23 = _mm256_add_epi32(_mm256_slli_epi32(upper[1], 8), lower[1]);
    // Each half becomes (its row of 01, its row of 23, ...) twice; the two halves then hold rows 0, 2 and 1, 3.
    const __m256i pairs = _mm256_hadd_epi32(rows01, rows23), quads = _mm256_hadd_epi32(pairs, pairs);
    const __m128i even = _mm256_castsi256_si128(quads), odd = _mm256_extracti128_si256(quads, 1);
    const __m128i sums = _mm_unpacklo_epi32(even, odd);
    const __m128 factors = _mm_mul_ps(_mm_loadu_ps(scales + g * kDotColumns), _mm_set1_ps(steps[g]));
    total = _mm_fmadd_ps(_mm_cvtepi32_ps(sums), factors, total);
  }
  _mm_storeu_ps(to, total);
}

constexpr DotProducts kVnni{{tile_vnni<1>, tile_vnni<2>, tile_vnni<3>, tile_vnni<4>}, int4_rows_vnni};
constexpr DotProducts kAvx2{{tile_avx2<1>, tile_avx2<2>, tile_avx2<3>, tile_avx2<4>}, int4_rows_avx2};

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
