// bfloat16 products with float32 sums on x86: the tile unit (AMX) where there is one, else pairwise dot products
// (AVX512_BF16). Both read the same panels: A as 16-row tiles of 32 depths, B as rows of pairs (two depths of one
// column side by side).
#include "backends/cpu/gemm/product.h"

#if defined(__x86_64__) && defined(__linux__)

#include <algorithm>
#include <cstring>

#include "backends/cpu/target.h"
#include "backends/cpu/tile_unit_x86.h"
#include "backends/cpu/transpose_words_x86.h"

#define MICA_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define MICA_AMX __attribute__((target("amx-tile,amx-bf16")))

namespace mica::cpu::gemm_impl {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;
constexpr int kTile = 16;                   // rows or columns of a tile
constexpr int kPanel = 32;                  // rows of a panel of A, columns of a panel of B
constexpr int kDepth = 32;                  // bfloat16 in a row of A's tiles: the unit of depth
constexpr int64_t kStep = kPanel * kDepth;  // elements of a panel per unit of depth

// ---- packing ----------------------------------------------------------------------------------------------------

MICA_AVX512 inline __mmask32 first_n(int64_t n) { return n >= 32 ? 0xffffffffu : n <= 0 ? 0u : (1u << n) - 1; }

// Joins two runs of 32 elements into pairs. `low` receives the pairs of the first 16 elements.
MICA_AVX512 inline void pair(__m512i even, __m512i odd, __m512i& low, __m512i& high) {
  const __m512i a = _mm512_unpacklo_epi16(even, odd), b = _mm512_unpackhi_epi16(even, odd);
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  low = _mm512_permutex2var_epi64(a, first, b);
  high = _mm512_permutex2var_epi64(a, second, b);
}

// One stride of an operand is 1, or none is. An operand without one is first gathered into runs along the depth.
MICA_AVX512 void gather_runs(const uint16_t* src, int64_t stride, int64_t k_stride, int64_t count, int64_t depth,
                             uint16_t* block) {
  std::memset(block, 0, kStep * sizeof(uint16_t));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t p = 0; p < depth; ++p) block[i * kDepth + p] = src[i * stride + p * k_stride];
  }
}

MICA_AVX512 void pack_a(const void* src_bytes, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k,
                        void* panel) {
  const uint16_t* src = static_cast<const uint16_t*>(src_bytes);
  uint16_t* dst = static_cast<uint16_t*>(panel);
  alignas(64) uint16_t block[kStep];
  for (int64_t p = 0; p < k; p += kDepth, dst += kStep) {
    const int64_t depth = std::min<int64_t>(kDepth, k - p);
    if (row_stride == 1 && k_stride != 1) {  // depths are rows in memory: pair them, then transpose the pairs
      const __mmask32 mask = first_n(rows);
      __m512i low[16], high[16];
#pragma GCC unroll 16
      for (int q = 0; q < 16; ++q) {
        const uint16_t* from = src + (p + 2 * q) * k_stride;
        const __m512i even = _mm512_maskz_loadu_epi16(2 * q < depth ? mask : 0, from);
        const __m512i odd = _mm512_maskz_loadu_epi16(2 * q + 1 < depth ? mask : 0, from + k_stride);
        pair(even, odd, low[q], high[q]);
      }
      transpose_words(low);
      transpose_words(high);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        _mm512_store_si512(dst + i * kDepth, low[i]);
        _mm512_store_si512(dst + (kTile + i) * kDepth, high[i]);
      }
      continue;
    }
    const uint16_t* from = src + p * k_stride;
    int64_t stride = row_stride;
    if (k_stride != 1) {
      gather_runs(from, row_stride, k_stride, rows, depth, block);
      from = block;
      stride = kDepth;
    }
    const __mmask32 mask = first_n(depth);
    for (int64_t i = 0; i < kPanel; ++i) {
      _mm512_store_si512(dst + i * kDepth,
                         i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * stride) : _mm512_setzero_si512());
    }
  }
}

MICA_AVX512 void pack_b(const void* src_bytes, int64_t k_stride, int64_t col_stride, int64_t k, int64_t cols,
                        void* panel) {
  const uint16_t* src = static_cast<const uint16_t*>(src_bytes);
  uint16_t* dst = static_cast<uint16_t*>(panel);
  alignas(64) uint16_t block[kStep];
  for (int64_t p = 0; p < k; p += kDepth, dst += kStep) {
    const int64_t depth = std::min<int64_t>(kDepth, k - p);
    if (col_stride == 1) {
      const __mmask32 mask = first_n(cols);
      for (int q = 0; q < 16; ++q) {
        const uint16_t* from = src + (p + 2 * q) * k_stride;
        const __m512i even = _mm512_maskz_loadu_epi16(2 * q < depth ? mask : 0, from);
        const __m512i odd = _mm512_maskz_loadu_epi16(2 * q + 1 < depth ? mask : 0, from + k_stride);
        __m512i low, high;
        pair(even, odd, low, high);
        _mm512_store_si512(dst + q * 2 * kPanel, low);
        _mm512_store_si512(dst + q * 2 * kPanel + 2 * kTile, high);
      }
      continue;
    }
    const uint16_t* from = src + p * k_stride;
    int64_t stride = col_stride;
    if (k_stride != 1) {
      gather_runs(from, col_stride, k_stride, cols, depth, block);
      from = block;
      stride = kDepth;
    }
    const __mmask32 mask = first_n(depth);
    for (int half = 0; half < 2; ++half) {
      __m512i words[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const int64_t col = half * kTile + i;
        words[i] = col < cols ? _mm512_maskz_loadu_epi16(mask, from + col * stride) : _mm512_setzero_si512();
      }
      transpose_words(words);
#pragma GCC unroll 16
      for (int q = 0; q < 16; ++q) _mm512_store_si512(dst + q * 2 * kPanel + half * 2 * kTile, words[q]);
    }
  }
}

// ---- AMX --------------------------------------------------------------------------------------------------------

constexpr int64_t kPrefetchAhead = 4096;  // bytes of B

inline void prefetch_lines(const char* from) {
#pragma GCC unroll 16
  for (int i = 0; i < kTile; ++i) __builtin_prefetch(from + i * 64);
}

// Tiles 0 to 3 hold the sums, 4 and 5 rows of A, 6 and 7 columns of B. It writes whole tiles, because the buffer of the
// sums is padded to panels.
MICA_AMX void run_tiles(const MicroTile& t) {
  char* c = static_cast<char*>(t.c);
  const int64_t stride = t.c_row_stride * static_cast<int64_t>(sizeof(float));
  char* lower = c + kTile * stride;
  const char* a = static_cast<const char*>(t.a);
  const char* b = static_cast<const char*>(t.b);
  constexpr int64_t kStepBytes = kStep * 2, kTileBytes = kStepBytes / 2;
  const bool tall = t.rows > kTile;
  if (t.store == Store::Accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 64, stride);
    if (tall) {
      _tile_loadd(2, lower, stride);
      _tile_loadd(3, lower + 64, stride);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  if (tall) {
    for (int64_t k = t.k; k > 0; k -= kDepth, a += kStepBytes, b += kStepBytes) {
      _tile_loadd(4, a, 64);
      _tile_loadd(6, b, 128);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + 64, 128);
      prefetch_lines(b + kPrefetchAhead);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + kTileBytes, 64);
      prefetch_lines(b + kPrefetchAhead + kTileBytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(2, lower, stride);
    _tile_stored(3, lower + 64, stride);
  } else {
    for (int64_t k = t.k; k > 0; k -= kDepth, a += kStepBytes, b += kStepBytes) {
      _tile_loadd(4, a, 64);
      _tile_loadd(6, b, 128);
      _tile_loadd(7, b + 64, 128);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
    }
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 64, stride);
}

// ---- AVX512_BF16 ------------------------------------------------------------------------------------------------

constexpr int kGroup = 8;  // rows at a time: sixteen sums, two vectors of B

MICA_AVX512_BF16 void run_pairs(const MicroTile& t) {
  for (int first = 0; first < t.rows; first += kGroup) {
    const uint16_t* a = static_cast<const uint16_t*>(t.a) + first * kDepth;
    const uint16_t* b = static_cast<const uint16_t*>(t.b);
    float* c = static_cast<float*>(t.c) + first * t.c_row_stride;
    __m512 sums[kGroup][2];
#pragma GCC unroll 8
    for (int i = 0; i < kGroup; ++i) {
      sums[i][0] = t.store == Store::Accumulate ? _mm512_loadu_ps(c + i * t.c_row_stride) : _mm512_setzero_ps();
      sums[i][1] = t.store == Store::Accumulate ? _mm512_loadu_ps(c + i * t.c_row_stride + kTile) : _mm512_setzero_ps();
    }
    for (int64_t k = t.k; k > 0; k -= kDepth, a += kStep - kDepth) {
      for (int q = 0; q < kDepth / 2; ++q, a += 2, b += 2 * kPanel) {
        const __m512bh b0 = reinterpret_cast<__m512bh>(_mm512_load_si512(b));
        const __m512bh b1 = reinterpret_cast<__m512bh>(_mm512_load_si512(b + 2 * kTile));
#pragma GCC unroll 8
        for (int i = 0; i < kGroup; ++i) {
          int32_t two;
          std::memcpy(&two, a + i * kDepth, sizeof(two));
          const __m512bh row = reinterpret_cast<__m512bh>(_mm512_set1_epi32(two));
          sums[i][0] = _mm512_dpbf16_ps(sums[i][0], row, b0);
          sums[i][1] = _mm512_dpbf16_ps(sums[i][1], row, b1);
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kGroup; ++i) {
      _mm512_storeu_ps(c + i * t.c_row_stride, sums[i][0]);
      _mm512_storeu_ps(c + i * t.c_row_stride + kTile, sums[i][1]);
    }
  }
}

bool has_avx512_bf16() {
  return may_use_avx512() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bf16");
}

}  // namespace

const BFloat16Kernel* bfloat16_kernel() {
  static const BFloat16Kernel tiles{{kPanel, kPanel, run_tiles, kPanel, false, 2 * 2048, kBlockBytes, 0},
                                    {kDepth, pack_a, pack_b, enter_tiles, leave_tiles}};
  static const BFloat16Kernel pairs{{kPanel, kPanel, run_pairs, kPanel, false, 2 * 256, kBlockBytes, 0},
                                    {kDepth, pack_a, pack_b, nullptr, nullptr}};
  static const BFloat16Kernel* const chosen = has_bfloat16_tiles() ? &tiles : has_avx512_bf16() ? &pairs : nullptr;
  return chosen;
}

}  // namespace mica::cpu::gemm_impl

#else

namespace mica::cpu::gemm_impl {

const BFloat16Kernel* bfloat16_kernel() { return nullptr; }

}  // namespace mica::cpu::gemm_impl

#endif
