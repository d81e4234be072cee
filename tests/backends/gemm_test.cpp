// Matrix products against a naive reference in wider arithmetic: every dtype, size class, layout and factor.
#include "backends/cpu/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::cpu {
namespace {

template <class T>
constexpr bool kIsComplex = false;
template <class R>
constexpr bool kIsComplex<std::complex<R>> = true;

// Sums of integers wrap in 64 bits, those of floats are exact enough in double.
template <class T>
using Reference = std::conditional_t<std::is_integral_v<T>, uint64_t,
                                     std::conditional_t<kIsComplex<T>, std::complex<double>, double>>;

template <class T>
Reference<T> widen(T v) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(v));
  } else if constexpr (kIsComplex<T>) {
    return Reference<T>(v);
  } else {
    return static_cast<double>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(v));
  }
}

template <class T>
Reference<T> factor(const GemmScalar& s) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(s.integer);
  } else if constexpr (kIsComplex<T>) {
    return s.value;
  } else {
    return s.value.real();
  }
}

template <class T>
T random_element(std::mt19937& rng) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(rng() | (static_cast<uint64_t>(rng()) << 32));
  } else if constexpr (kIsComplex<T>) {
    std::normal_distribution<double> normal;
    const double re = normal(rng);
    return T(re, normal(rng));
  } else {
    return T(static_cast<float>(std::normal_distribution<double>()(rng)));
  }
}

// Relative error of one operation in the type that sums T, and of the final rounding to T.
template <class T>
double sum_epsilon() {
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, complex128>) return 0x1p-53;
  return 0x1p-24;
}
template <class T>
double rounding_epsilon() {
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-8 * 1.001;
  if constexpr (std::is_same_v<T, Half>) return 0x1p-11 * 1.001;
  return sum_epsilon<T>();
}

// A matrix inside a larger allocation, with the layouts a view can have.
enum class Layout { Rows, Columns, PaddedRows, NegativeRows, NegativeColumns, Strided, BroadcastRow, BroadcastColumn };
constexpr Layout kLayouts[] = {Layout::Rows,         Layout::Columns,         Layout::PaddedRows,
                               Layout::NegativeRows, Layout::NegativeColumns, Layout::Strided,
                               Layout::BroadcastRow, Layout::BroadcastColumn};

template <class T>
struct Matrix {
  std::vector<T> storage;
  int64_t batch, rows, cols, row_stride, col_stride, batch_stride, origin = 0;

  Matrix(int64_t batches, int64_t r, int64_t c, Layout layout, std::mt19937& rng) : batch(batches), rows(r), cols(c) {
    int64_t extent = r * c;
    row_stride = c;
    col_stride = 1;
    switch (layout) {
      case Layout::Rows:
        break;
      case Layout::Columns:
        row_stride = 1;
        col_stride = r;
        break;
      case Layout::PaddedRows:
        row_stride = c + 5;
        extent = r * (c + 5);
        break;
      case Layout::NegativeRows:
        row_stride = -c;
        origin = std::max<int64_t>(r - 1, 0) * c;
        break;
      case Layout::NegativeColumns:
        col_stride = -1;
        origin = std::max<int64_t>(c - 1, 0);
        break;
      case Layout::Strided:
        row_stride = 3 * c;
        col_stride = 2;
        extent = 3 * r * c;
        break;
      case Layout::BroadcastRow:
        row_stride = 0;
        extent = c;
        break;
      case Layout::BroadcastColumn:
        row_stride = 1;
        col_stride = 0;
        extent = r;
        break;
    }
    batch_stride = extent + 3;
    storage.resize(static_cast<size_t>(batch_stride * batches) + 1);
    for (T& v : storage) v = random_element<T>(rng);
  }
  T& at(int64_t b, int64_t i, int64_t j) {
    return storage[static_cast<size_t>(origin + b * batch_stride + i * row_stride + j * col_stride)];
  }
  T* data() { return storage.data() + origin; }
  GemmOperand operand() { return {data(), row_stride, col_stride, batch_stride}; }
};

struct Case {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  Layout a = Layout::Rows, b = Layout::Rows, c = Layout::Rows;
  GemmScalar alpha = 1, beta = 0;
  bool bias = false;

  std::string text() const {
    return "batch " + std::to_string(batch) + " m " + std::to_string(m) + " n " + std::to_string(n) + " k " +
           std::to_string(k) + " layouts " + std::to_string(int(a)) + std::to_string(int(b)) + std::to_string(int(c)) +
           " alpha " + std::to_string(alpha.value.real()) + " beta " + std::to_string(beta.value.real()) +
           (bias ? " bias" : "");
  }
};

template <class T>
void check(const Case& t) {
  std::mt19937 rng(static_cast<uint32_t>(t.m * 31 + t.n * 7 + t.k));
  Matrix<T> a(t.batch, t.m, t.k, t.a, rng), b(t.batch, t.k, t.n, t.b, rng), c(t.batch, t.m, t.n, t.c, rng);
  std::vector<T> bias(static_cast<size_t>(t.n) + 1);
  for (T& v : bias) v = random_element<T>(rng);
  Matrix<T> result = c;
  // What beta == 0 must not read.
  const bool reads_c = std::is_integral_v<T> ? t.beta.integer != 0 : t.beta.value != 0.0;
  if constexpr (!std::is_integral_v<T>) {
    if (!reads_c) {
      for (int64_t x = 0; x < t.batch; ++x) {
        for (int64_t i = 0; i < t.m; ++i) {
          for (int64_t j = 0; j < t.n; ++j) result.at(x, i, j) = T(std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
  }
  Matrix<T> untouched = result;
  GemmCall call;
  call.dtype = dtype_v<T>;
  call.batch = t.batch;
  call.m = t.m;
  call.n = t.n;
  call.k = t.k;
  call.a = a.operand();
  call.b = b.operand();
  call.c = result.data();
  call.c_row_stride = result.row_stride;
  call.c_col_stride = result.col_stride;
  call.c_batch_stride = result.batch_stride;
  call.alpha = t.alpha;
  call.beta = t.beta;
  call.bias = t.bias ? bias.data() : nullptr;
  gemm(call);

  const Reference<T> alpha = factor<T>(t.alpha), beta = factor<T>(t.beta);
  std::vector<Reference<T>> rows(static_cast<size_t>(t.m * t.k)), columns(static_cast<size_t>(t.n * t.k));
  for (int64_t x = 0; x < t.batch; ++x) {
    for (int64_t p = 0; p < t.k; ++p) {
      for (int64_t i = 0; i < t.m; ++i) rows[static_cast<size_t>(i * t.k + p)] = widen(a.at(x, i, p));
      for (int64_t j = 0; j < t.n; ++j) columns[static_cast<size_t>(j * t.k + p)] = widen(b.at(x, p, j));
    }
    for (int64_t i = 0; i < t.m; ++i) {
      for (int64_t j = 0; j < t.n; ++j) {
        const Reference<T>* row = rows.data() + i * t.k;
        const Reference<T>* column = columns.data() + j * t.k;
        Reference<T> sum{};
        double magnitude = 0;
        for (int64_t p = 0; p < t.k; ++p) {
          const auto product = row[p] * column[p];
          sum += product;
          if constexpr (!std::is_integral_v<T>) magnitude += std::abs(product);
        }
        Reference<T> expected = alpha * sum;
        if (reads_c) expected += beta * widen(c.at(x, i, j));
        if (t.bias) expected += widen(bias[static_cast<size_t>(j)]);
        T& got = result.at(x, i, j);
        if constexpr (std::is_integral_v<T>) {
          ASSERT_EQ(got, static_cast<T>(expected)) << t.text() << " at " << x << ' ' << i << ' ' << j;
        } else {
          magnitude *= std::abs(alpha);
          if (reads_c) magnitude += std::abs(beta * widen(c.at(x, i, j)));
          if (t.bias) magnitude += std::abs(widen(bias[static_cast<size_t>(j)]));
          // Summation in any order errs by at most depth * epsilon * sum of magnitudes, here and in the reference.
          const double bound = 2 * (4 + static_cast<double>(t.k)) * sum_epsilon<T>() * magnitude +
                               rounding_epsilon<T>() * std::abs(expected) + 0x1p-24 * std::is_same_v<T, Half>;
          ASSERT_LE(std::abs(widen(got) - expected), bound) << t.text() << " at " << x << ' ' << i << ' ' << j;
        }
        got = untouched.at(x, i, j);
      }
    }
  }
  ASSERT_EQ(std::memcmp(result.storage.data(), untouched.storage.data(), untouched.storage.size() * sizeof(T)), 0)
      << "wrote outside C: " << t.text();
}

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

// More rows than are taken as few, several blocks of columns and of depths, each with a remainder.
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
