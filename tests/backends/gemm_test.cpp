// Matrix products against a naive reference in wider arithmetic: every dtype, size class, layout and factor.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "backends/cpu/gemm/gemm.h"
#include "mica/allocator.h"
#include "mica/error.h"
#include "mica/parallel.h"
#include "tests/backends/gemm_reference.h"

namespace mica::cpu {
namespace {

using namespace reference;

template <class T>
class GemmTest : public ::testing::Test {};
using AllTypes = ::testing::Types<float, double, BFloat16, Half, complex64, complex128, uint8_t, int8_t, int16_t,
                                  int32_t, int64_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(GemmTest, AllTypes);

TYPED_TEST(GemmTest, OddSizes) {
  const int64_t sizes[] = {0, 1, 2, 3, 7, 17, 33, 65};
  for (const int64_t m : sizes) {
    for (const int64_t n : sizes) {
      for (const int64_t k : sizes) ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = m, .n = n, .k = k}));
    }
  }
  for (const int64_t k : {1, 33, 129, 600}) {
    ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 129, .n = 131, .k = k}));
  }
}

TYPED_TEST(GemmTest, Layouts) {
  const int64_t shapes[][3] = {{5, 6, 7}, {1, 40, 50}, {40, 1, 50}, {1, 1, 70}, {36, 70, 69}, {70, 37, 38}};
  for (const auto& shape : shapes) {
    for (const Layout a : kLayouts) {
      for (const Layout b : kLayouts) {
        for (const Layout c : {Layout::Rows, Layout::Columns, Layout::Strided, Layout::NegativeColumns}) {
          ASSERT_NO_FATAL_FAILURE(
              check<TypeParam>({.m = shape[0], .n = shape[1], .k = shape[2], .a = a, .b = b, .c = c}));
        }
      }
    }
  }
}

// Both operands too large to be used where they lie, with remainders of every tile and of a 16 x 16 block.
TYPED_TEST(GemmTest, PackedLayouts) {
  for (const Layout a : {Layout::Rows, Layout::Columns, Layout::Strided}) {
    for (const Layout b : {Layout::Rows, Layout::Columns, Layout::Strided}) {
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 45, .n = 203, .k = 51, .a = a, .b = b}));
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 29, .n = 139, .k = 300, .a = a, .b = b, .beta = 1, .bias = true}));
    }
  }
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 250, .n = 150, .k = 40, .a = Layout::Columns, .b = Layout::Columns}));
}

TYPED_TEST(GemmTest, FactorsAndBias) {
  const int64_t shapes[][3] = {{5, 6, 7}, {9, 9, 0}, {1, 40, 50}, {40, 1, 50}, {1, 1, 9}, {35, 70, 69}, {36, 34, 600}};
  for (const auto& shape : shapes) {
    for (const GemmScalar alpha : {GemmScalar(1), GemmScalar(2), GemmScalar(-3), GemmScalar(0)}) {
      for (const GemmScalar beta : {GemmScalar(0), GemmScalar(1), GemmScalar(-2)}) {
        for (const bool bias : {false, true}) {
          for (const Layout c : {Layout::Rows, Layout::Columns}) {
            const Case t{
                .m = shape[0], .n = shape[1], .k = shape[2], .c = c, .alpha = alpha, .beta = beta, .bias = bias};
            ASSERT_NO_FATAL_FAILURE(check<TypeParam>(t));
          }
        }
      }
    }
  }
}

TYPED_TEST(GemmTest, Batches) {
  for (const int64_t batch : {0, 2, 3, 9}) {
    for (const int64_t size : {1, 4, 31, 70}) {
      const Case t{
          .batch = batch, .m = size, .n = size + 1, .k = size + 2, .b = Layout::Columns, .alpha = 2, .beta = 1};
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>(t));
    }
  }
}

TYPED_TEST(GemmTest, DeepProducts) {
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 10, .n = 40, .k = 9001, .alpha = 2, .beta = 1, .bias = true}));
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 3, .n = 4, .k = 70001}));
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 59, .n = 31, .k = 2307, .alpha = 2, .beta = 1}));
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 45, .n = 49, .k = 2307}));
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 1, .n = 2, .k = 200003, .a = Layout::Strided, .b = Layout::Columns}));
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 4200, .n = 33, .k = 17, .alpha = 3, .beta = 1, .bias = true}));
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 33, .n = 4200, .k = 17, .b = Layout::Columns, .beta = 1}));
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 300, .n = 1, .k = 3000}));
  ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 3000, .n = 1, .k = 300, .a = Layout::Columns, .bias = true}));
}

TYPED_TEST(GemmTest, ThinProducts) {
  for (const Layout a : {Layout::Rows, Layout::Columns}) {
    for (const Layout c : {Layout::Rows, Layout::Columns}) {
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 8, .n = 700, .k = 130, .a = a, .c = c, .beta = 1, .bias = true}));
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 700, .n = 8, .k = 130, .a = a, .c = c, .alpha = 2, .beta = 1}));
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 700, .n = 2, .k = 130, .a = a, .c = c}));
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 9000, .n = 16, .k = 9, .a = a, .c = c, .bias = true}));
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 16, .n = 9000, .k = 9, .a = a, .c = c}));
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 120, .n = 330, .k = 1, .a = a, .c = c, .beta = 2, .bias = true}));
    }
  }
}

TYPED_TEST(GemmTest, ManySmallProducts) {
  for (const int64_t size : {1, 3, 8}) {
    ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.batch = 1200, .m = size, .n = size, .k = size + 1, .alpha = 2}));
  }
}

template <class T>
std::vector<T> multiply(const std::vector<T>& a, const std::vector<T>& b, int64_t m, int64_t n, int64_t k) {
  std::vector<T> c(static_cast<size_t>(m * n));
  GemmCall call;
  call.dtype = dtype_v<T>;
  call.m = m;
  call.n = n;
  call.k = k;
  call.a = {a.data(), k, 1, 0};
  call.b = {b.data(), n, 1, 0};
  call.c = c.data();
  call.c_row_stride = n;
  call.c_col_stride = 1;
  gemm(call);
  return c;
}

template <class T>
class GemmFloatTest : public ::testing::Test {};
using FloatTypes = ::testing::Types<float, double, BFloat16, Half>;
TYPED_TEST_SUITE(GemmFloatTest, FloatTypes);

TYPED_TEST(GemmFloatTest, InfinitiesAndNansPropagateAndStayWhereTheyBelong) {
  using T = TypeParam;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t size : {3, 17, 40, 129}) {
    for (const int64_t n : {int64_t{1}, size}) {
      const auto at = [&](int64_t i, int64_t j, int64_t width) { return static_cast<size_t>(i * width + j); };
      std::vector<T> a(static_cast<size_t>(size * size), T(1.f)), b(static_cast<size_t>(size * n), T(1.f));
      a[at(0, size - 1, size)] = T(inf);
      a[at(1, 0, size)] = T(nan);
      a[at(2, 1, size)] = T(inf);
      b[at(1, n - 1, n)] = T(0.f);
      const std::vector<T> c = multiply(a, b, size, n, size);
      for (int64_t j = 0; j < n; ++j) {
        const bool last = j == n - 1;
        EXPECT_EQ(static_cast<double>(c[at(0, j, n)]), static_cast<double>(inf)) << size;
        EXPECT_TRUE(std::isnan(static_cast<double>(c[at(1, j, n)]))) << size;
        EXPECT_EQ(std::isnan(static_cast<double>(c[at(2, j, n)])), last) << size << ' ' << j;  // inf * 0
        for (int64_t i = 3; i < size; ++i) {
          EXPECT_EQ(static_cast<double>(c[at(i, j, n)]),
                    static_cast<double>(T(static_cast<float>(size - (last ? 1 : 0)))));
        }
      }
    }
  }
}

TEST(Gemm, LowPrecisionRoundsOnce) {
  // 256 + 1 + 1 + ... is lost term by term in bfloat16, whose step is 2 there.
  for (const int64_t m : {1, 5, 64}) {
    std::vector<BFloat16> a(static_cast<size_t>(m * 65), BFloat16(1.f)), b(65 * 40, BFloat16(1.f));
    for (int64_t i = 0; i < m; ++i) a[static_cast<size_t>(i * 65)] = BFloat16(256.f);
    for (const BFloat16 v : multiply(a, b, m, 40, 65)) EXPECT_EQ(static_cast<float>(v), 320.f);
  }
}

TEST(Gemm, LongSumsAreMadeOfShorterOnes) {
  constexpr int64_t kDepth = 1024;
  const std::vector<float> a(20 * kDepth, 1.0f), b(kDepth * 40, 0.1f);
  const double exact = kDepth * static_cast<double>(0.1f);
  for (const float sum : multiply(a, b, 20, 40, kDepth)) ASSERT_NEAR(sum, exact, 4e-6 * exact);
}

TEST(Gemm, ComplexFactors) {
  const Case t{.m = 20,
               .n = 21,
               .k = 22,
               .alpha = std::complex<double>(0.5, 2),
               .beta = std::complex<double>(0, -1),
               .bias = true};
  check<complex64>(t);
  check<complex128>(t);
}

TEST(Gemm, LargeIntegerFactorsAreExact) {
  check<int64_t>({.m = 5, .n = 6, .k = 7, .alpha = int64_t{(1LL << 62) + 12345}, .beta = int64_t{(1LL << 61) + 1}});
}

TEST(Gemm, SharedRightOperandFoldsIntoRows) {
  std::mt19937 rng(1);
  const int64_t batch = 4, m = 30, n = 50, k = 40;
  Matrix<float> a(1, batch * m, k, Layout::Rows, rng), b(1, k, n, Layout::Columns, rng),
      c(1, batch * m, n, Layout::Rows, rng);
  GemmCall call;
  call.dtype = DType::Float32;
  call.batch = batch;
  call.m = m;
  call.n = n;
  call.k = k;
  call.a = {a.data(), k, 1, m * k};
  call.b = {b.data(), b.row_stride, b.col_stride, 0};
  call.c = c.data();
  call.c_row_stride = n;
  call.c_col_stride = 1;
  call.c_batch_stride = m * n;
  gemm(call);
  for (int64_t i = 0; i < batch * m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += double(a.at(0, i, p)) * b.at(0, p, j);
      ASSERT_NEAR(c.at(0, i, j), sum, 1e-4);
    }
  }
}

TEST(Gemm, RefusesDtypesWithoutArithmetic) {
  GemmCall call;
  call.m = call.n = call.k = 1;
  for (const DType dtype : {DType::Bool, DType::Complex32, DType::Float8_e5m2, DType::Undefined}) {
    call.dtype = dtype;
    EXPECT_THROW(gemm(call), Error);
  }
  call.dtype = DType::Float32;
  call.m = -1;
  EXPECT_THROW(gemm(call), Error);
}

TEST(Gemm, ManyCallersAndTrim) {
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([i] {
      for (int repeat = 0; repeat < 5; ++repeat) {
        check<float>({.m = 150 + i, .n = 150, .k = 150});
        check<BFloat16>({.m = 90 + i, .n = 90, .k = 90});
        gemm_trim();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  check<float>({.m = 150, .n = 150, .k = 150, .b = Layout::Columns});
  EXPECT_GT(gemm_trim(), 0);
  EXPECT_EQ(gemm_trim(), 0);
  check<float>({.m = 150, .n = 150, .k = 150});
  EXPECT_GT(cpu_trim(), 0u);
  EXPECT_EQ(gemm_trim(), 0);  // the allocator has given it back with its own
}

TEST(Gemm, ThreadCountsAgree) {
  const int before = get_num_threads();
  for (const int threads : {1, 2, 3, 5}) {
    set_num_threads(threads);
    check<float>({.m = 190, .n = 210, .k = 170, .b = Layout::Columns, .bias = true});
    check<BFloat16>({.m = 190, .n = 210, .k = 170});
    check<float>({.m = 1, .n = 3, .k = 300000, .b = Layout::Columns});
    check<float>({.batch = 7, .m = 60, .n = 70, .k = 80});
  }
  set_num_threads(before);
}

// Each thread packs panels of B for all of A. A panel is several units of work, some of which another thread takes.
TYPED_TEST(GemmTest, ThreadsSharePanelsOfB) {
  const int before = get_num_threads();
  for (const int threads : {2, 3}) {
    set_num_threads(threads);
    for (const Layout b : {Layout::Rows, Layout::Columns}) {
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 403, .n = 640, .k = 33, .b = b, .bias = true}));
      ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 90, .n = 900, .k = 70, .b = b, .beta = 1}));
    }
  }
  set_num_threads(before);
}

// Too few columns for all threads: each packs its rows of A and its block of B, with several depths each.
TYPED_TEST(GemmTest, ThreadsShareRowsOfBlocks) {
  const int before = get_num_threads();
  for (const int threads : {3, 16}) {
    set_num_threads(threads);
    for (const Layout a : {Layout::Rows, Layout::Columns}) {
      for (const Layout b : {Layout::Rows, Layout::Columns}) {
        ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 117, .n = 150, .k = 60, .a = a, .b = b, .bias = a == b}));
      }
    }
    ASSERT_NO_FATAL_FAILURE(check<TypeParam>({.m = 33, .n = 70, .k = 4300, .b = Layout::Columns, .beta = 1}));
  }
  set_num_threads(before);
}

// Sums are set aside every 256 depths, and rows of B are fetched ahead until 16 or 32 before the last.
TEST(Gemm, DepthsAroundTheEndsOfSums) {
  for (const int64_t k : {1, 15, 16, 17, 31, 32, 33, 255, 256, 257, 271, 272, 273, 287, 288, 289, 511, 513, 544}) {
    for (const int64_t n : {40, 290}) {
      for (const Layout b : {Layout::Rows, Layout::Columns}) {
        ASSERT_NO_FATAL_FAILURE(check<float>({.m = 25, .n = n, .k = k, .b = b}));
        ASSERT_NO_FATAL_FAILURE(check<double>({.m = 25, .n = n, .k = k, .b = b}));
      }
    }
  }
}

// Panels of A of every height, from adjacent rows.
TEST(Gemm, PanelsOfAdjacentRows) {
  for (int64_t m = 84; m <= 140; m += 7) {
    ASSERT_NO_FATAL_FAILURE(check<float>({.m = m, .n = 300, .k = 70, .a = Layout::Columns}));
    ASSERT_NO_FATAL_FAILURE(check<double>({.m = m, .n = 300, .k = 70, .a = Layout::Columns}));
    ASSERT_NO_FATAL_FAILURE(check<int32_t>({.m = m, .n = 300, .k = 70, .a = Layout::Columns}));
  }
}

// More rows than are taken as few, several blocks of columns and of depths, each with a remainder.
TEST(Gemm, SeveralBlocksEachWay) {
  const int before = get_num_threads();
  for (const Layout a : {Layout::Rows, Layout::Columns}) {
    for (const Layout b : {Layout::Rows, Layout::Columns}) {
      set_num_threads(a == b ? 1 : 2);
      check<float>({.m = 137, .n = 547, .k = 621, .a = a, .b = b, .bias = a == b});
    }
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace mica::cpu
