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
  template <int kBits>
  static constexpr int kMore = 0;
  template <int kBits>
  static constexpr int kTimes = kBits == 4 ? 16 : 1;  // a half byte becomes the upper one, so it keeps its sign

  MICA_FEW_BITS_OP Sums all(int32_t v) { return vdupq_n_s32(v); }
  MICA_FEW_BITS_OP Floats all(float v) { return vdupq_n_f32(v); }
  MICA_FEW_BITS_OP Sums add(Sums a, Sums b) { return vaddq_s32(a, b); }
  MICA_FEW_BITS_OP Sums times(Sums a, int32_t b) { return vmulq_n_s32(a, b); }
  MICA_FEW_BITS_OP Floats times(Floats a, float b) { return vmulq_n_f32(a, b); }
  MICA_FEW_BITS_OP Floats add_product(Floats sum, Floats a, Floats b) { return vfmaq_f32(sum, a, b); }
  MICA_FEW_BITS_OP Floats floats(Sums a) { return vcvtq_f32_s32(a); }
  MICA_FEW_BITS_OP Floats load(const float* from) { return vld1q_f32(from); }
  MICA_FEW_BITS_OP void store(float* to, Floats v) { vst1q_f32(to, v); }
  MICA_FEW_BITS_OP Activations activations(const int8_t* from) { return vld1q_s8(from); }

  template <int kBits>
  MICA_FEW_BITS_OP Bytes numbers(const uint8_t* from, int half) {
    const uint8x16_t bytes = vld1q_u8(from);
    if (kBits == 8) return vreinterpretq_s8_u8(bytes);
    return vreinterpretq_s8_u8(half == 0 ? vshlq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(0xf0)));
  }

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

constexpr FewBits kFewBits = make_few_bits<Machine>();
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
