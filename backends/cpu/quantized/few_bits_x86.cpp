// Weights of few bits on x86-64: vpdpbusd (AVX512_VNNI) adds four products of an unsigned and a signed 8-bit integer to
// each 32-bit sum. AVX2 multiplies and adds pairs of them in 16 bits, in which 8-bit weights have a sign of their own:
// at most 2 * 128 * 127.
#include "backends/cpu/quantized/few_bits.h"
#include "backends/cpu/target.h"

#if defined(__x86_64__)
// GCC 12 warns of the undefined vectors with which its own AVX-512 intrinsics start.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstring>

namespace mica::cpu {

namespace {

// Activations stay in memory: four of them are fetched into all lanes when they are used.
inline int32_t four_activations(const int8_t* from, int lane) {
  int32_t four;
  std::memcpy(&four, from + 4 * lane, 4);
  return four;
}

// What vectors of 256 bits do for both of the machines below: code for AVX2 is inlined where there is more.
struct Vectors256 {
#define MICA_FEW_BITS_OP __attribute__((target("avx2,fma"))) static inline
  using Sums = __m256i;
  using Floats = __m256;
  using Bytes = __m256i;
  using Activations = const int8_t*;
  static constexpr int kLanes = 8;

  MICA_FEW_BITS_OP Sums all(int32_t v) { return _mm256_set1_epi32(v); }
  MICA_FEW_BITS_OP Floats all(float v) { return _mm256_set1_ps(v); }
  MICA_FEW_BITS_OP Sums add(Sums a, Sums b) { return _mm256_add_epi32(a, b); }
  MICA_FEW_BITS_OP Sums subtract(Sums a, Sums b) { return _mm256_sub_epi32(a, b); }
  MICA_FEW_BITS_OP Sums times(Sums a, int32_t b) { return _mm256_mullo_epi32(a, _mm256_set1_epi32(b)); }
  MICA_FEW_BITS_OP Floats times(Floats a, float b) { return _mm256_mul_ps(a, _mm256_set1_ps(b)); }
  MICA_FEW_BITS_OP Floats add_product(Floats sum, Floats a, Floats b) { return _mm256_fmadd_ps(a, b, sum); }
  MICA_FEW_BITS_OP Floats floats(Sums a) { return _mm256_cvtepi32_ps(a); }
  MICA_FEW_BITS_OP Floats load(const float* from) { return _mm256_loadu_ps(from); }
  MICA_FEW_BITS_OP void store(float* to, Floats v) { _mm256_storeu_ps(to, v); }
  MICA_FEW_BITS_OP Activations activations(const int8_t* from) { return from; }
  MICA_FEW_BITS_OP Bytes pairs(const uint8_t* from) {
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
                            _mm256_set1_epi8(static_cast<char>(0x80)));
  }
  MICA_FEW_BITS_OP Bytes low(Bytes both) { return _mm256_and_si256(both, _mm256_set1_epi8(15)); }
#undef MICA_FEW_BITS_OP
};

namespace vnni {
#define MICA_FEW_BITS_TARGET __attribute__((target("fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define MICA_FEW_BITS_OP MICA_FEW_BITS_TARGET static inline
#include "backends/cpu/quantized/few_bits-inl.h"

struct Machine {
  using Sums = __m512i;
  using Floats = __m512;
  using Bytes = __m512i;
  using Activations = const int8_t*;
  static constexpr int kLanes = 16, kMostSums = 8, kMostRows = 8;
  static constexpr bool kWidens = true;
  static constexpr bool kJoined = false, kAddsToFloats = false;
  static constexpr int kMore = 128, kMoreLow = 0, kMoreHigh = 0;

  MICA_FEW_BITS_OP Sums all(int32_t v) { return _mm512_set1_epi32(v); }
  MICA_FEW_BITS_OP Floats all(float v) { return _mm512_set1_ps(v); }
  MICA_FEW_BITS_OP Sums add(Sums a, Sums b) { return _mm512_add_epi32(a, b); }
  MICA_FEW_BITS_OP Sums times(Sums a, int32_t b) { return _mm512_mullo_epi32(a, _mm512_set1_epi32(b)); }
  MICA_FEW_BITS_OP Floats times(Floats a, float b) { return _mm512_mul_ps(a, _mm512_set1_ps(b)); }
  MICA_FEW_BITS_OP Floats add_product(Floats sum, Floats a, Floats b) { return _mm512_fmadd_ps(a, b, sum); }
  MICA_FEW_BITS_OP Floats floats(Sums a) { return _mm512_cvtepi32_ps(a); }
  MICA_FEW_BITS_OP Floats load(const float* from) { return _mm512_loadu_ps(from); }
  MICA_FEW_BITS_OP void store(float* to, Floats v) { _mm512_storeu_ps(to, v); }
  MICA_FEW_BITS_OP Activations activations(const int8_t* from) { return from; }

  MICA_FEW_BITS_OP Bytes numbers(const uint8_t* from) {
    return _mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(static_cast<char>(0x80)));
  }

  template <int kBits>
  MICA_FEW_BITS_OP Sums dot(Sums sum, Bytes weights, Activations from, int lane) {
    return _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(four_activations(from, lane)));
  }
};

// A record of 4-bit weights is a vector of 256 bits.
struct Pairs : Vectors256 {
  static constexpr int kMostSums = 16;
  static constexpr bool kJoined = true, kAddsToFloats = false;
  static constexpr int kMore = 0, kMoreLow = 8, kMoreHigh = 8 * 16 + 8;

  MICA_FEW_BITS_OP Bytes high(Bytes both) { return both; }

  template <int kBits>
  MICA_FEW_BITS_OP Sums dot(Sums sum, Bytes weights, Activations from, int lane) {
    return _mm256_dpbusd_epi32(sum, weights, _mm256_set1_epi32(four_activations(from, lane)));
  }
};

// 254 times the sums of the first plane and the sums of the second, of columns 0 to 7 and, 16 times as much, of 8
// to 15.
MICA_FEW_BITS_OP __m512i joined_planes(const __m256i (&low)[2], const __m256i (&high)[2]) {
  const __m512i base = _mm512_set1_epi32(kPlaneBase);
  __m512i sums[2];
#pragma GCC unroll 2
  for (int p = 0; p < 2; ++p)
    sums[p] = _mm512_inserti64x4(_mm512_castsi256_si512(low[p]), _mm256_sub_epi32(high[p], low[p]), 1);
  return _mm512_add_epi32(_mm512_mullo_epi32(sums[0], base), sums[1]);
}

// A tile reads scales from floats that were made of the pairs before. With one row that costs more than half of the
// products, so here the pairs become floats where they are used. The next block's pairs are fetched meanwhile: no
// processor foresees such strides. With as many strides at once it does not look far ahead in the weights either.
MICA_FEW_BITS_TARGET void few_bits_pairs_row(const FewBitsPairsRow& row) {
  constexpr int64_t kAhead = 4096;
  const __m512 sixteenths =
      _mm512_insertf32x8(_mm512_set1_ps(1.0f), _mm256_set1_ps(1.0f / 16), 1);  // what the upper columns are times
  const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
  const uint8_t* weights = row.weights;
  const int8_t *first = row.planes[0], *second = row.planes[1];
  const char* pairs = row.pairs;
  __m512 total = _mm512_setzero_ps();
  for (int64_t g = 0; g < row.groups; ++g, pairs += row.pairs_stride) {
    _mm_prefetch(pairs + sizeof(__m512i), _MM_HINT_T0);
    __m256i low[2], high[2];
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const int32_t sum = row.plane_sums[p][g];
      low[p] = Pairs::all(-Pairs::kMoreLow * sum);
      high[p] = Pairs::all(-Pairs::kMoreHigh * sum);
    }
    for (const int8_t* const end = first + row.group; first != end; first += kFewBitsChunk, second += kFewBitsChunk) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, weights += few_bits_record(4)) {
        if (i % 2 == 0) _mm_prefetch(weights + kAhead, _MM_HINT_T0);
        const __m256i both = Pairs::pairs(weights), lower = Pairs::low(both);
        low[0] = Pairs::dot<4>(low[0], lower, first, i);
        low[1] = Pairs::dot<4>(low[1], lower, second, i);
        high[0] = Pairs::dot<4>(high[0], both, first, i);
        high[1] = Pairs::dot<4>(high[1], both, second, i);
      }
    }
    const __m512i here = _mm512_loadu_si512(pairs);
    const __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(here, 16));
    const __m512 least = _mm512_castsi512_ps(_mm512_and_si512(here, upper));
    const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(joined_planes(low, high)),
                                       _mm512_mul_ps(sixteenths, _mm512_set1_ps(row.steps[g])));
    total = _mm512_fmadd_ps(value, scale, total);
    total = _mm512_fmadd_ps(least, _mm512_set1_ps(row.sums[g]), total);
  }
  _mm512_storeu_ps(row.out, total);
}

constexpr FewBits kFewBits = make_few_bits<Pairs, Machine>(nullptr, nullptr, few_bits_pairs_row);
#undef MICA_FEW_BITS_TARGET
#undef MICA_FEW_BITS_OP
}  // namespace vnni

namespace avx2 {
#define MICA_FEW_BITS_TARGET __attribute__((target("avx2,fma")))
#define MICA_FEW_BITS_OP MICA_FEW_BITS_TARGET static inline
#include "backends/cpu/quantized/few_bits-inl.h"

struct Machine : Vectors256 {
  static constexpr int kMostSums = 4, kMostRows = 4;
  static constexpr bool kWidens = false;
  static constexpr bool kJoined = false, kAddsToFloats = false;
  static constexpr int kMore = 0, kMoreLow = 8, kMoreHigh = 8;

  MICA_FEW_BITS_OP Bytes numbers(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  // Products of whole bytes would not fit 16 bits, so the halves are taken apart.
  MICA_FEW_BITS_OP Bytes high(Bytes both) { return low(_mm256_srli_epi16(both, 4)); }

  template <int kBits>
  MICA_FEW_BITS_OP Sums dot(Sums sum, Bytes weights, Activations from, int lane) {
    __m256i four = _mm256_set1_epi32(four_activations(from, lane));
    if (kBits == 8) {
      four = _mm256_sign_epi8(four, weights);
      weights = _mm256_abs_epi8(weights);
    }
    const __m256i pairs = _mm256_maddubs_epi16(weights, four);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

constexpr FewBits kFewBits = make_few_bits<Machine, Machine>();
#undef MICA_FEW_BITS_TARGET
#undef MICA_FEW_BITS_OP
}  // namespace avx2

}  // namespace

const FewBits* vnni_few_bits() {
  const bool there = may_use_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return there ? &vnni::kFewBits : nullptr;
}

const FewBits* avx2_few_bits() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2::kFewBits : nullptr;
}

}  // namespace mica::cpu

#else

namespace mica::cpu {
const FewBits* vnni_few_bits() { return nullptr; }
const FewBits* avx2_few_bits() { return nullptr; }
}  // namespace mica::cpu

#endif
