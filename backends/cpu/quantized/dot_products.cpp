// The choice of dot products for this machine, and those that any machine can do.
#include "backends/cpu/quantized/dot_products.h"

namespace mica::cpu {

namespace {

template <int kRows>
void tile_plain(const int8_t* const* a, const int8_t* const* b, int64_t depth, int32_t* sums) {
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kDotColumns; ++j) {
      const int8_t *left = a[i], *right = b[j];
      int32_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += static_cast<int32_t>(left[k]) * static_cast<int32_t>(right[k]);
      sums[i * kDotColumns + j] = sum;
    }
}

void int4_rows_plain(const uint8_t* weights, const int8_t* high, const int8_t* low, int64_t groups,
                     int64_t chunks_per_group, const float* scales, const float* steps, float* to) {
  constexpr int64_t kHalf = kInt4Chunk / 2;
  for (int j = 0; j < kDotColumns; ++j) to[j] = 0;
  for (int64_t g = 0; g < groups; ++g) {
    int32_t sums[kDotColumns] = {};
    for (int64_t c = 0; c < chunks_per_group; ++c) {
      for (int j = 0; j < kDotColumns; ++j)
        for (int64_t i = 0; i < kHalf; ++i) {
          const int32_t byte = weights[j * kHalf + i];
          sums[j] += (byte & 15) * (256 * high[i] + low[i]) + (byte >> 4) * (256 * high[i + kHalf] + low[i + kHalf]);
        }
      weights += kDotColumns * kHalf, high += kInt4Chunk, low += kInt4Chunk;
    }
    for (int j = 0; j < kDotColumns; ++j) to[j] += scales[g * kDotColumns + j] * steps[g] * static_cast<float>(sums[j]);
  }
}

constexpr DotProducts kPlain{{tile_plain<1>, tile_plain<2>, tile_plain<3>, tile_plain<4>}, int4_rows_plain};

}  // namespace

const DotProducts& dot_products() {
  static const DotProducts& chosen = [&]() -> const DotProducts& {
    if (const DotProducts* neon = neon_dot_products()) return *neon;
    if (const DotProducts* vnni = vnni_dot_products()) return *vnni;
    if (const DotProducts* avx2 = avx2_dot_products()) return *avx2;
    return kPlain;
  }();
  return chosen;
}

}  // namespace mica::cpu
