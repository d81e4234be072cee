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

constexpr DotProducts kPlain{{tile_plain<1>, tile_plain<2>, tile_plain<3>, tile_plain<4>}};

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
