// Squares of 16 x 16 words of 32 bits, rows and columns exchanged in registers (AVX-512).
#pragma once

#if defined(__x86_64__)
// GCC 12 warns of the undefined vectors with which its own AVX-512 intrinsics start.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#define MICA_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

namespace mica::cpu {

// rows[i] holds 16 words; afterwards rows[j] holds word j of each.
MICA_AVX512 inline void transpose_words(__m512i rows[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(rows[i], rows[i + 1]), b = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]),
                  d = _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {  // t[4g + i], lane l: word 4l + i of rows 4g..4g+3
    const __m512i a = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88), b = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd), d = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
    rows[i] = _mm512_shuffle_i32x4(a, b, 0x88);
    rows[8 + i] = _mm512_shuffle_i32x4(a, b, 0xdd);
    rows[4 + i] = _mm512_shuffle_i32x4(c, d, 0x88);
    rows[12 + i] = _mm512_shuffle_i32x4(c, d, 0xdd);
  }
}

}  // namespace mica::cpu
#endif
