// Products of 8-bit floats from C++.
#include <gtest/gtest.h>

#include "mica/layers.h"
#include "mica/ops.h"

namespace mica {
namespace {

Tensor numbers(int64_t rows, int64_t columns, DType dtype) {
  return arange(rows * columns).remainder(5).sub(2).reshape({rows, columns}).to(dtype);
}

TEST(ScaledProducts, TensorsRowsAndResults) {
  const Tensor a = numbers(6, 16, DType::Float8_e4m3fn), b = numbers(8, 16, DType::Float8_e5m2).t();
  const Tensor plain = mm(a.to(DType::Float32), b.to(DType::Float32));
  const Tensor two = full({}, 2.0f), quarter = full({1}, 0.25f);
  EXPECT_EQ(_scaled_mm(a, b, two, quarter).dtype(), DType::Float8_e4m3fn);
  const Tensor wide = _scaled_mm(a, b, two, quarter, {}, {}, DType::Float32);
  EXPECT_TRUE(equal(wide, plain.mul(0.5)));

  const Tensor rows = arange(6).to(DType::Float32).reshape({6, 1});
  const Tensor columns = arange(8).to(DType::Float32).reshape({1, 8});
  const Tensor bias = arange(8).to(DType::BFloat16);
  Tensor out = empty({6, 8}, TensorOptions(DType::Float32));
  _scaled_mm_out(out, a, b, rows, columns, bias, {}, std::nullopt, false);
  EXPECT_TRUE(equal(out, plain.mul(rows).mul(columns).add(bias)));
  EXPECT_TRUE(equal(_scaled_mm_v2(a, b, {rows}, {1}, {}, {columns}, {1}, {}, bias, DType::Float32), out));
}

TEST(ScaledProducts, Refusals) {
  const Tensor a = numbers(4, 16, DType::Float8_e4m3fn), one = full({}, 1.0f);
  EXPECT_THROW(_scaled_mm(a.to(DType::Float32), a.t(), one, one), Error);
  EXPECT_THROW(_scaled_mm(a, a, one, one), Error);
  EXPECT_THROW(_scaled_mm(a, a.t(), full({3, 1}, 1.0f), full({1, 4}, 1.0f)), Error);
  EXPECT_THROW(_scaled_mm_v2(a, a.t(), {one}, {4}, {}, {one}, {4}, {}, {}, std::nullopt), Error);
}

}  // namespace
}  // namespace mica
