// Products of 8-bit integers, summed in 32 bits. On aarch64 with the dot-product extension four products are one
// instruction (sdot); elsewhere the compiler vectorises the loop over int16 products.
#include <cstdint>

#include "backends/cpu/register.h"
#include "mica/kernel_types.h"
#include "mica/parallel.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

namespace mica::cpu {

namespace {

using Dot = int32_t(const int8_t* a, const int8_t* b, int64_t n);

int32_t dot_plain(const int8_t* a, const int8_t* b, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<int32_t>(a[i]) * static_cast<int32_t>(b[i]);
  return sum;
}

#if defined(__aarch64__)
[[gnu::target("arch=armv8.2-a+dotprod")]] int32_t dot_sdot(const int8_t* a, const int8_t* b, int64_t n) {
  int32x4_t s0 = vdupq_n_s32(0), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    s0 = vdotq_s32(s0, vld1q_s8(a + i), vld1q_s8(b + i));
    s1 = vdotq_s32(s1, vld1q_s8(a + i + 16), vld1q_s8(b + i + 16));
    s2 = vdotq_s32(s2, vld1q_s8(a + i + 32), vld1q_s8(b + i + 32));
    s3 = vdotq_s32(s3, vld1q_s8(a + i + 48), vld1q_s8(b + i + 48));
  }
  for (; i + 16 <= n; i += 16) s0 = vdotq_s32(s0, vld1q_s8(a + i), vld1q_s8(b + i));
  int32_t sum = vaddvq_s32(vaddq_s32(vaddq_s32(s0, s1), vaddq_s32(s2, s3)));
  for (; i < n; ++i) sum += static_cast<int32_t>(a[i]) * static_cast<int32_t>(b[i]);
  return sum;
}
#endif

Dot* chosen_dot() {
#if defined(__aarch64__)
  constexpr unsigned long kHasDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  if (getauxval(AT_HWCAP) & kHasDotProduct) return dot_sdot;
#endif
  return dot_plain;
}

// Rows of a in pairs with blocks of rows of b that stay in the cache.
void int8_mm_kernel(const TensorView& out, const TensorView& a, const TensorView& b) {
  static Dot* const dot = chosen_dot();
  const int64_t rows = out.sizes[0], columns = out.sizes[1], inner = a.sizes[1];
  const auto *left = a.ptr<const int8_t>(), *right = b.ptr<const int8_t>();
  auto* to = out.ptr<int32_t>();
  constexpr int64_t kBlock = 64;
  const int64_t blocks = (columns + kBlock - 1) / kBlock;
  parallel_for(0, rows * blocks, 1 + 65536 / (kBlock * (inner + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t w = begin; w < end; ++w) {
      const int64_t block = w / rows, r = w % rows,
                    last = (block + 1) * kBlock < columns ? (block + 1) * kBlock : columns;
      for (int64_t c = block * kBlock; c < last; ++c)
        to[r * columns + c] = dot(left + r * inner, right + c * inner, inner);
    }
  });
}

MICA_REGISTER_CPU(int8_mm, int8_mm_kernel);

}  // namespace
}  // namespace mica::cpu
