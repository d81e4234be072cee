// Weights of 8 bits on x86-64: vpdpbusd (AVX512_VNNI) adds four products of an unsigned and a signed 8-bit integer to
// each 32-bit sum. Weights are made unsigned by adding 128, and 128 times the sum of the activations is taken out
// again. A lane's sum of a group, and 254 times that of a higher plane, stay in 32 bits: 512 depths of 127 * 128 * 254.
#include "backends/cpu/quantized/byte_weights.h"
#include "backends/cpu/target.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>

#include "backends/cpu/transpose_words_x86.h"

namespace mica::cpu {

namespace {

#define MICA_BYTES __attribute__((target("fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define MICA_BYTES_INLINE MICA_BYTES inline __attribute__((always_inline))

MICA_BYTES_INLINE __mmask64 first_bytes(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

// The numbers that the planes' sums of a group stand for, in steps.
template <int kPlanes>
MICA_BYTES_INLINE __m512 joined(const __m512i* sums) {
  const __m512i base = _mm512_set1_epi32(kPlaneBase);
  const __m512 upper = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_mullo_epi32(sums[0], base), sums[1]));
  if constexpr (kPlanes == 2) return upper;
  return _mm512_fmadd_ps(upper, _mm512_set1_ps(kPlaneBase), _mm512_cvtepi32_ps(sums[2]));
}

// The sum of the lanes of each of four vectors.
MICA_BYTES_INLINE __m128 four_sums(const __m512 (&v)[4]) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

template <int kPlanes>
struct RowSums {
  __m512i sum[4][kPlanes], more[kPlanes];

  MICA_BYTES_INLINE void clear() {
#pragma GCC unroll 3
    for (int p = 0; p < kPlanes; ++p) {
      more[p] = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum[j][p] = _mm512_setzero_si512();
    }
  }

  MICA_BYTES_INLINE void add(const ByteRow& row, const int8_t* const (&weights)[4], int64_t k, __mmask64 here) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i left[kPlanes];
#pragma GCC unroll 3
    for (int p = 0; p < kPlanes; ++p) {
      left[p] = _mm512_maskz_loadu_epi8(here, row.planes[p] + k);
      more[p] = _mm512_dpbusd_epi32(more[p], flip, left[p]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      // The next four rows: a processor that reads four short rows at once foresees none of them.
      _mm_prefetch(weights[j] + k + 4 * row.depth, _MM_HINT_T0);
      const __m512i right = _mm512_xor_si512(_mm512_maskz_loadu_epi8(here, weights[j] + k), flip);
#pragma GCC unroll 3
      for (int p = 0; p < kPlanes; ++p) sum[j][p] = _mm512_dpbusd_epi32(sum[j][p], right, left[p]);
    }
  }
};

template <int kPlanes>
MICA_BYTES void byte_row(const ByteRow& row) {
  for (int64_t first = 0; first < row.columns; first += 4) {
    const int8_t* weights[4];
    for (int j = 0; j < 4; ++j) weights[j] = row.weights + std::min(first + j, row.columns - 1) * row.depth;
    __m512 total[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    const float* step = row.steps;
    for (int64_t k = 0; k < row.depth; ++step) {
      const int64_t end = std::min(row.depth, k + row.group);
      RowSums<kPlanes> sums;
      sums.clear();
      for (; k + 64 <= end; k += 64) sums.add(row, weights, k, ~__mmask64{0});
      if (k < end) sums.add(row, weights, k, first_bytes(end - k));
      k = end;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 3
        for (int p = 0; p < kPlanes; ++p) sums.sum[j][p] = _mm512_sub_epi32(sums.sum[j][p], sums.more[p]);
        total[j] = _mm512_fmadd_ps(joined<kPlanes>(sums.sum[j]), _mm512_set1_ps(*step), total[j]);
      }
    }
    const auto there = static_cast<__mmask8>((1 << std::min<int64_t>(4, row.columns - first)) - 1);
    _mm_mask_storeu_ps(row.out + first, there, four_sums(total));
  }
}

MICA_BYTES void arrange(const int8_t* const* from, int rows, int64_t depth, bool flip, uint8_t* to) {
  const __m512i more = _mm512_set1_epi8(static_cast<char>(flip ? 0x80 : 0));
  for (int64_t k = 0; k < depth; k += kByteDepths, to += kByteDepths * kByteColumns) {
    const __mmask64 here = first_bytes(depth - k);
    __m512i words[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __mmask64 mask = i < rows ? here : 0;
      words[i] = _mm512_maskz_add_epi8(mask, _mm512_maskz_loadu_epi8(mask, from[i < rows ? i : 0] + k), more);
    }
    transpose_words(words);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + 64 * i, words[i]);
  }
}

MICA_BYTES_INLINE __m512i four_everywhere(const int8_t* from) {
  int32_t four;
  std::memcpy(&four, from, 4);
  return _mm512_set1_epi32(four);
}

template <int kPlanes, int kRows>
MICA_BYTES void byte_tile(const ByteTile& tile) {
  constexpr int kStride = kByteRecord * kByteStreams;  // of a record
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(tile.out + r * kByteColumns, _mm512_setzero_ps());
  const uint8_t* weights = tile.weights;
  const int8_t* streams = tile.streams;
  int64_t g = 0;
  for (int64_t k = 0; k < tile.depth; k += tile.group, ++g) {
    __m512i sum[kRows][kPlanes];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
      for (int p = 0; p < kPlanes; ++p) sum[r][p] = _mm512_set1_epi32(-128 * tile.plane_sums[p][r * tile.groups + g]);
    const uint8_t* const end = weights + std::min(tile.group, tile.depth - k) * kByteColumns;
    for (; weights != end; weights += kStride, streams += kStride) {
      const __m512i right = _mm512_loadu_si512(weights);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
        for (int p = 0; p < kPlanes; ++p)
          sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], right, four_everywhere(streams + kByteRecord * (r * kPlanes + p)));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512 step = _mm512_set1_ps(tile.steps[r * tile.groups + g]);
      float* const out = tile.out + r * kByteColumns;
      _mm512_storeu_ps(out, _mm512_fmadd_ps(joined<kPlanes>(sum[r]), step, _mm512_loadu_ps(out)));
    }
  }
}

constexpr ByteWeights kVnniBytes{arrange,
                                 {byte_row<2>, byte_row<3>},
                                 {byte_tile<2, byte_rows(2)>, byte_tile<3, byte_rows(3)>},
                                 {byte_tile<2, byte_rows(2) / 2>, byte_tile<3, byte_rows(3) / 2>}};

}  // namespace

const ByteWeights* byte_weights() {
  const bool there = may_use_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return there ? &kVnniBytes : nullptr;
}

}  // namespace mica::cpu

#else

namespace mica::cpu {
const ByteWeights* byte_weights() { return nullptr; }
}  // namespace mica::cpu

#endif
