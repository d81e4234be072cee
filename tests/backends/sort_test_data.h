// Data for the tests of sorting and searching, and the order they follow, written with comparisons alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/sort.h"
#include "mica/parallel.h"

namespace mica::cpu::sort_test {

template <class T>
bool is_nan(T x) {
  if constexpr (kHasNan<T>) return std::isnan(static_cast<double>(x));
  return false;
}
template <class T>
bool less_than(T a, T b) {
  if (is_nan(a) || is_nan(b)) return !is_nan(a) && is_nan(b);
  if constexpr (kHasNan<T>) {
    return static_cast<double>(a) < static_cast<double>(b);
  } else {
    return a < b;
  }
}
template <class T>
bool equivalent(T a, T b) {
  return !less_than(a, b) && !less_than(b, a);
}

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

enum class Fill { Random, Ties, Special, Ascending, Constant };

template <class T>
std::vector<T> make_data(int64_t n, Fill fill, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> data(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = random();
    T& x = data[i];
    switch (fill) {
      case Fill::Random:
        std::memcpy(static_cast<void*>(&x), &bits, sizeof(T));
        break;
      case Fill::Ties:
        x = static_cast<T>(static_cast<float>(bits % 5));
        break;
      case Fill::Ascending:
        x = static_cast<T>(static_cast<float>(i % 60000) - 30000);
        if constexpr (std::is_unsigned_v<T>) x = static_cast<T>(i);
        break;
      case Fill::Constant:
        x = static_cast<T>(3.0f);
        break;
      case Fill::Special:
        if constexpr (kHasNan<T>) {
          const float infinity = std::numeric_limits<float>::infinity();
          const float choices[] = {0.0f, -0.0f, infinity, -infinity, NAN, -NAN, 1.0f, -1.0f, 1e-7f, -1e-7f, 0.1f};
          x = static_cast<T>(choices[bits % 11]);
        } else {
          const T choices[] = {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T(0), T(1), T(-1)};
          x = choices[bits % 5];
        }
        break;
    }
  }
  return data;
}

template <class T>
std::vector<int64_t> stable_order(const std::vector<T>& data, bool descending) {
  std::vector<int64_t> order(data.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return descending ? less_than(data[b], data[a]) : less_than(data[a], data[b]);
  });
  return order;
}

inline const std::vector<Fill> kFills = {Fill::Random, Fill::Ties, Fill::Special, Fill::Ascending, Fill::Constant};
template <class T>
class OrderedDTypes : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(initial_threads_); }

 private:
  int initial_threads_ = get_num_threads();
};
using ElementTypes = testing::Types<uint8_t, int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, Half,
                                    BFloat16, float, double>;

}  // namespace mica::cpu::sort_test
