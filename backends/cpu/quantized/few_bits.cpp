// The choice of the tiles of few_bits.h for this machine, and those that any machine can do.
#include "backends/cpu/quantized/few_bits.h"

#include <algorithm>
#include <array>

namespace mica::cpu {

namespace {

namespace plain {
#define MICA_FEW_BITS_TARGET
#include "backends/cpu/quantized/few_bits-inl.h"
#undef MICA_FEW_BITS_TARGET

struct Machine {
  using Sums = int32_t;
  using Floats = float;
  using Bytes = std::array<int32_t, 4>;
  using Activations = const int8_t*;
  static constexpr int kLanes = 1, kMostSums = 4, kMostRows = 4;
  static constexpr bool kWidens = false;
  static constexpr bool kJoined = false, kAddsToFloats = false;
  static constexpr int kMore = 0, kMoreLow = 0, kMoreHigh = 0;

  template <class T>
  static T all(T v) {
    return v;
  }
  template <class T>
  static T add(T a, T b) {
    return a + b;
  }
  template <class T>
  static T times(T a, T b) {
    return a * b;
  }
  static float add_product(float sum, float a, float b) { return sum + a * b; }
  static float floats(int32_t a) { return static_cast<float>(a); }
  static float load(const float* from) { return *from; }
  static void store(float* to, float v) { *to = v; }
  static Activations activations(const int8_t* from) { return from; }

  static Bytes numbers(const uint8_t* from) {
    Bytes four;
    for (int i = 0; i < 4; ++i) four[i] = static_cast<int8_t>(from[i]);
    return four;
  }
  static Bytes pairs(const uint8_t* from) { return numbers(from); }
  static Bytes low(Bytes four) {
    for (int32_t& number : four) number = (number & 15) - 8;
    return four;
  }
  static Bytes high(Bytes four) {
    for (int32_t& number : four) number >>= 4;
    return four;
  }

  template <int kBits>
  static int32_t dot(int32_t sum, const Bytes& weights, Activations from, int lane) {
    for (int i = 0; i < 4; ++i) sum += weights[i] * from[4 * lane + i];
    return sum;
  }
};

constexpr FewBits kFewBits = make_few_bits<Machine, Machine>();
}  // namespace plain

}  // namespace

const FewBits& few_bits() {
  static const FewBits& chosen = [&]() -> const FewBits& {
    if (const FewBits* neon = neon_few_bits()) return *neon;
    if (const FewBits* vnni = vnni_few_bits()) return *vnni;
    if (const FewBits* avx2 = avx2_few_bits()) return *avx2;
    return plain::kFewBits;
  }();
  return chosen;
}

}  // namespace mica::cpu
