// Products of 8-bit integers in the tile unit, against sums one by one.
#include "backends/cpu/quantized/int8_tiles.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace mica::cpu {
namespace {

TEST(Int8Tiles, ProductsAreExact) {
  if (!int8_tiles_there()) GTEST_SKIP() << "this CPU has no tile unit for 8-bit integers (AMX)";
  struct Size {
    int64_t rows, columns, depth;
  };
  std::mt19937 random(1);
  for (const Size s : {Size{1, 1, 1}, Size{16, 16, 64}, Size{17, 33, 65}, Size{40, 31, 63}, Size{130, 70, 1030}}) {
    std::vector<int8_t> a(static_cast<size_t>(s.rows * s.depth)), b(static_cast<size_t>(s.columns * s.depth));
    for (int8_t& v : a) v = static_cast<int8_t>(random());
    for (int8_t& v : b) v = static_cast<int8_t>(random());
    std::vector<int32_t> got(static_cast<size_t>(s.rows * s.columns), 7);
    int8_tile_products(a.data(), s.rows, b.data(), s.columns, s.depth, got.data());
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t c = 0; c < s.columns; ++c) {
        int32_t sum = 0;
        for (int64_t k = 0; k < s.depth; ++k)
          sum += a[static_cast<size_t>(r * s.depth + k)] * b[static_cast<size_t>(c * s.depth + k)];
        ASSERT_EQ(got[static_cast<size_t>(r * s.columns + c)], sum)
            << r << ", " << c << " of " << s.rows << " x " << s.columns << " x " << s.depth;
      }
  }
}

}  // namespace
}  // namespace mica::cpu
