// The reference for products: a naive one in wider arithmetic, and operands in every layout that a view can have.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/gemm/gemm.h"

namespace mica::cpu::reference {

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
  // Memory that must not be read where beta is 0.
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

}  // namespace mica::cpu::reference
