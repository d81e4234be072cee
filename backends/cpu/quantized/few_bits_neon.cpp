// Weights of few bits on aarch64: sdot adds four products of 8-bit integers to each of four 32-bit sums.
#include "backends/cpu/quantized/few_bits.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>

#define MICA_FEW_BITS_TARGET [[gnu::target("arch=armv8.2-a+dotprod")]]
#define MICA_FEW_BITS_OP MICA_FEW_BITS_TARGET static inline

namespace mica::cpu {

namespace {

namespace neon {
#include "backends/cpu/quantized/few_bits-inl.h"

struct Machine {
  using Sums = int32x4_t;
  using Floats = float32x4_t;
  using Bytes = int8x16_t;
  using Activations = int8x16_t;
  static constexpr int kLanes = 4, kMostSums = 8, kMostRows = 4;
  static constexpr bool kWidens = true;
  static constexpr bool kJoined = true, kAddsToFloats = true;
  static constexpr int kMore = 0, kMoreLow = 8, kMoreHigh = 8;

  MICA_FEW_BITS_OP Sums all(int32_t v) { return vdupq_n_s32(v); }
  MICA_FEW_BITS_OP Floats all(float v) { return vdupq_n_f32(v); }
  MICA_FEW_BITS_OP Sums add(Sums a, Sums b) { return vaddq_s32(a, b); }
  MICA_FEW_BITS_OP Sums subtract(Sums a, Sums b) { return vsubq_s32(a, b); }
  MICA_FEW_BITS_OP Sums times(Sums a, int32_t b) { return vmulq_n_s32(a, b); }
  MICA_FEW_BITS_OP Floats times(Floats a, float b) { return vmulq_n_f32(a, b); }
  MICA_FEW_BITS_OP Floats add_product(Floats sum, Floats a, Floats b) { return vfmaq_f32(sum, a, b); }
  MICA_FEW_BITS_OP Floats floats(Sums a) { return vcvtq_f32_s32(a); }
  MICA_FEW_BITS_OP Floats difference(Sums a, Sums b) {
    return vsubq_f32(vreinterpretq_f32_s32(a), vreinterpretq_f32_s32(b));
  }
  MICA_FEW_BITS_OP Floats load(const float* from) { return vld1q_f32(from); }
  MICA_FEW_BITS_OP void store(float* to, Floats v) { vst1q_f32(to, v); }
  MICA_FEW_BITS_OP Activations activations(const int8_t* from) { return vld1q_s8(from); }

  MICA_FEW_BITS_OP Bytes numbers(const uint8_t* from) { return vreinterpretq_s8_u8(vld1q_u8(from)); }
  MICA_FEW_BITS_OP Bytes pairs(const uint8_t* from) { return numbers(from); }
  MICA_FEW_BITS_OP Bytes low(Bytes both) { return vandq_s8(both, vdupq_n_s8(15)); }
  MICA_FEW_BITS_OP Bytes high(Bytes both) { return both; }

  template <int kBits>
  MICA_FEW_BITS_OP Sums dot(Sums sum, Bytes weights, Activations four, int lane) {
    switch (lane) {  // a constant once the loops are unrolled
      case 0:
        return vdotq_laneq_s32(sum, weights, four, 0);
      case 1:
        return vdotq_laneq_s32(sum, weights, four, 1);
      case 2:
        return vdotq_laneq_s32(sum, weights, four, 2);
      default:
        return vdotq_laneq_s32(sum, weights, four, 3);
    }
  }
};

// Compilers load a whole group before they multiply, and have not the registers for it. They do not move loads over
// this.
#define MICA_KEEP_ORDER asm volatile("" ::: "memory")

struct RowSums {
  int32x4_t sum[4];

  template <int kLane>
  [[gnu::target("arch=armv8.2-a+dotprod"), gnu::always_inline]] inline void add_pairs(const uint8_t* from,
                                                                                      int8x16_t a) {
    const int8x16_t mask = vdupq_n_s8(15);
    const int8x16_t x = Machine::pairs(from), y = Machine::pairs(from + 16);
    sum[0] = vdotq_laneq_s32(sum[0], vandq_s8(x, mask), a, kLane);
    sum[1] = vdotq_laneq_s32(sum[1], vandq_s8(y, mask), a, kLane);
    sum[2] = vdotq_laneq_s32(sum[2], x, a, kLane);
    sum[3] = vdotq_laneq_s32(sum[3], y, a, kLane);
  }

  template <int kLane>
  [[gnu::target("arch=armv8.2-a+dotprod"), gnu::always_inline]] inline void add_bytes(const uint8_t* from,
                                                                                      int8x16_t a) {
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) sum[t] = vdotq_laneq_s32(sum[t], Machine::numbers(from + 16 * t), a, kLane);
  }

  template <int kBits>
  [[gnu::target("arch=armv8.2-a+dotprod"), gnu::always_inline]] inline void add_chunk(const uint8_t* from,
                                                                                      const int8_t* numbers) {
    const int8x16_t a = vld1q_s8(numbers);
    if constexpr (kBits == 4) {
      add_pairs<0>(from, a);
      add_pairs<1>(from + 32, a);
      MICA_KEEP_ORDER;
      add_pairs<2>(from + 64, a);
      add_pairs<3>(from + 96, a);
    } else {
      add_bytes<0>(from, a);
      add_bytes<1>(from + 64, a);
      MICA_KEEP_ORDER;
      add_bytes<2>(from + 128, a);
      add_bytes<3>(from + 192, a);
    }
    MICA_KEEP_ORDER;
  }
};

// The processor converts one vector of integers or of float16 numbers in two cycles, in which it can do four dot
// products. So scales are converted where they are used, and integers not at all: they are added to the bits of a float
// (kFewBitsStart), and what was there before is subtracted.
template <int kBits>
MICA_FEW_BITS_TARGET void few_bits_row(const FewBitsRow& row) {
  const float32x4_t start = vreinterpretq_f32_s32(vdupq_n_s32(kFewBitsStart));
  const auto* scales = reinterpret_cast<const __fp16*>(row.scales);
  const uint8_t* weights = row.weights;
  const int8_t* numbers = row.numbers;
  float32x4_t total0 = vdupq_n_f32(0), total1 = total0, total2 = total0, total3 = total0;
  for (int64_t g = 0; g < row.groups; ++g, scales += kFewBitsColumns) {
    constexpr int64_t kChunkBytes = 4 * few_bits_record(kBits);
    const int32x4_t first = kBits == 4 ? vld1q_s32(row.starts + 4 * g) : vreinterpretq_s32_f32(start);
    RowSums sums{{first, first, first, first}};
    sums.template add_chunk<kBits>(weights, numbers);
    sums.template add_chunk<kBits>(weights + kChunkBytes, numbers + kFewBitsChunk);
    weights += 2 * kChunkBytes;
    numbers += kFewBitsRowGroup;
    const float32x4_t step = vld1q_dup_f32(row.steps + g);
    const float16x8_t near = vld1q_f16(scales), far = vld1q_f16(scales + 8);
    const float32x4_t scale0 = vmulq_f32(vcvt_f32_f16(vget_low_f16(near)), step);
    const float32x4_t scale1 = vmulq_f32(vcvt_high_f32_f16(near), step);
    const float32x4_t scale2 = vmulq_f32(vcvt_f32_f16(vget_low_f16(far)), step);
    const float32x4_t scale3 = vmulq_f32(vcvt_high_f32_f16(far), step);
    const float32x4_t sum0 = vreinterpretq_f32_s32(sums.sum[0]), sum1 = vreinterpretq_f32_s32(sums.sum[1]);
    total0 = vfmaq_f32(total0, vsubq_f32(sum0, start), scale0);
    total1 = vfmaq_f32(total1, vsubq_f32(sum1, start), scale1);
    // Of 4 bits, what the lower halves of bytes added is subtracted too.
    total2 = vfmaq_f32(total2, vsubq_f32(vreinterpretq_f32_s32(sums.sum[2]), kBits == 4 ? sum0 : start), scale2);
    total3 = vfmaq_f32(total3, vsubq_f32(vreinterpretq_f32_s32(sums.sum[3]), kBits == 4 ? sum1 : start), scale3);
  }
  constexpr float kUpper = kBits == 4 ? 1.0f / 16 : 1.0f;
  vst1q_f32(row.out, total0);
  vst1q_f32(row.out + 4, total1);
  vst1q_f32(row.out + 8, vmulq_n_f32(total2, kUpper));
  vst1q_f32(row.out + 12, vmulq_n_f32(total3, kUpper));
}

#undef MICA_KEEP_ORDER

constexpr FewBits kFewBits = make_few_bits<Machine, Machine>(few_bits_row<4>, few_bits_row<8>);
}  // namespace neon

}  // namespace

const FewBits* neon_few_bits() {
  constexpr unsigned long kHasDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  return getauxval(AT_HWCAP) & kHasDotProduct ? &neon::kFewBits : nullptr;
}

}  // namespace mica::cpu

#undef MICA_FEW_BITS_TARGET
#undef MICA_FEW_BITS_OP

#else

namespace mica::cpu {
const FewBits* neon_few_bits() { return nullptr; }
}  // namespace mica::cpu

#endif
