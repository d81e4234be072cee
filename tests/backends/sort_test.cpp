#include "backends/cpu/sort/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/sort_row.h"
#include "mica/parallel.h"

namespace mica::cpu {
namespace {

// The order written with comparisons alone, independent of order_key.
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

const std::vector<Fill> kFills = {Fill::Random, Fill::Ties, Fill::Special, Fill::Ascending, Fill::Constant};
const std::vector<int64_t> kSizes = {0, 1, 2, 3, 31, 64, 65, 128, 129, 1000, 100000};

template <class T>
class OrderedDTypes : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(initial_threads_); }

 private:
  int initial_threads_ = get_num_threads();
};
using ElementTypes = testing::Types<uint8_t, int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, Half,
                                    BFloat16, float, double>;
TYPED_TEST_SUITE(OrderedDTypes, ElementTypes);

TYPED_TEST(OrderedDTypes, KeysKeepTheOrderAndInvert) {
  using T = TypeParam;
  for (Fill fill : {Fill::Random, Fill::Special}) {
    const std::vector<T> data = make_data<T>(300, fill, 7);
    for (T a : data) {
      EXPECT_TRUE(equivalent(value_of_key<T>(order_key(a)), a));
      for (T b : data) ASSERT_EQ(order_key(a) < order_key(b), less_than(a, b));
    }
  }
}

TYPED_TEST(OrderedDTypes, SortIsTheStableOrder) {
  using T = TypeParam;
  for (int64_t n : kSizes) {
    for (Fill fill : kFills) {
      for (bool descending : {false, true}) {
        const std::vector<T> data = make_data<T>(n, fill, 1 + n);
        const std::vector<int64_t> expected = stable_order(data, descending);
        for (int threads : {1, 3}) {
          set_num_threads(threads);
          std::vector<T> values(n), values_alone(n);
          std::vector<int64_t> indices(n), indices_alone(n);
          sort(dtype_v<T>, {{}, n}, {data.data()}, {values.data()}, {indices.data()}, descending);
          sort(dtype_v<T>, {{}, n}, {data.data()}, {values_alone.data()}, {}, descending);
          sort(dtype_v<T>, {{}, n}, {data.data()}, {}, {indices_alone.data()}, descending);
          ASSERT_EQ(indices, expected) << n;
          ASSERT_EQ(indices_alone, expected) << n;
          for (int64_t i = 0; i < n; ++i) {
            ASSERT_TRUE(same_bits(values[i], data[expected[i]])) << n << " " << i;
            ASSERT_TRUE(same_bits(values_alone[i], data[expected[i]])) << n << " " << i;
          }
        }
      }
    }
  }
}

TYPED_TEST(OrderedDTypes, HugeRowsFollowTheSameOrder) {
  using T = TypeParam;
  const std::vector<T> data = make_data<T>(500, Fill::Special, 3);
  std::vector<T> values(500);
  std::vector<int64_t> indices(500);
  sort_huge_row_with_indices<T>({data.data(), 1}, 500, true, {values.data(), 1}, {indices.data(), 1});
  const std::vector<int64_t> expected = stable_order(data, true);
  EXPECT_EQ(indices, expected);
  for (int64_t i = 0; i < 500; ++i) ASSERT_TRUE(same_bits(values[i], data[expected[i]]));
}

// A (2, n, 3) block sorted along its middle dim, read backwards, with outputs laid out differently from the input.
TYPED_TEST(OrderedDTypes, SortTakesAnyStrides) {
  using T = TypeParam;
  for (int64_t n : {5, 60, 700}) {
    const std::vector<T> data = make_data<T>(2 * n * 3, Fill::Ties, n);
    const int64_t batch[] = {2, 3};
    const int64_t in_strides[] = {3 * n, 1}, value_strides[] = {1, 2 * n}, index_strides[] = {3 * n, n};
    std::vector<T> values(2 * n * 3);
    std::vector<int64_t> indices(2 * n * 3);
    sort(dtype_v<T>, {batch, n}, {data.data() + 3 * (n - 1), in_strides, -3}, {values.data(), value_strides, 2},
         {indices.data(), index_strides, 1}, false);
    for (int64_t a = 0; a < 2; ++a) {
      for (int64_t b = 0; b < 3; ++b) {
        std::vector<T> row(n);
        for (int64_t i = 0; i < n; ++i) row[i] = data[a * 3 * n + b + 3 * (n - 1 - i)];
        const std::vector<int64_t> expected = stable_order(row, false);
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(indices[a * 3 * n + b * n + i], expected[i]);
          ASSERT_TRUE(same_bits(values[a + b * 2 * n + 2 * i], row[expected[i]]));
        }
      }
    }
  }
}

template <class T>
void check_topk(int64_t n, int64_t k, Fill fill, bool largest) {
  const std::vector<T> data = make_data<T>(n, fill, n + k);
  std::vector<int64_t> expected = stable_order(data, largest);
  expected.resize(k);
  std::vector<int64_t> expected_set = expected;
  std::sort(expected_set.begin(), expected_set.end());
  // The same row, contiguous and with a stride, which take different ways through the kernel.
  std::vector<T> spread(2 * n);
  for (int64_t i = 0; i < n; ++i) spread[2 * i] = data[i];
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (int64_t stride : {1, 2}) {
      const Rows<const void> in{stride == 1 ? data.data() : spread.data(), {}, stride};
      std::vector<T> values(k);
      std::vector<int64_t> indices(k);
      topk(dtype_v<T>, {{}, n}, k, in, {values.data()}, {indices.data()}, largest, true);
      ASSERT_EQ(indices, expected) << n << " " << k;
      for (int64_t i = 0; i < k; ++i) ASSERT_TRUE(same_bits(values[i], data[indices[i]]));

      topk(dtype_v<T>, {{}, n}, k, in, {values.data()}, {indices.data()}, largest, false);
      for (int64_t i = 0; i < k; ++i) ASSERT_TRUE(same_bits(values[i], data[indices[i]]));
      std::sort(indices.begin(), indices.end());
      ASSERT_EQ(indices, expected_set) << n << " " << k;
    }
  }
}

TYPED_TEST(OrderedDTypes, TopkIsTheHeadOfTheStableOrder) {
  for (int64_t n : {1, 2, 31, 128, 129, 2000, 40000}) {
    for (int64_t k : {int64_t{1}, int64_t{7}, int64_t{50}, n / 3, n}) {
      if (k < 1 || k > n) continue;
      for (Fill fill : kFills) {
        for (bool largest : {true, false}) check_topk<TypeParam>(n, k, fill, largest);
      }
    }
  }
}

TYPED_TEST(OrderedDTypes, KthvalueHasTheRank) {
  using T = TypeParam;
  for (int64_t n : {1, 2, 3, 31, 1000, 20000}) {
    for (Fill fill : kFills) {
      for (int64_t k : {int64_t{1}, (n + 1) / 2, n}) {
        const std::vector<T> data = make_data<T>(n, fill, n + k);
        const std::vector<int64_t> order = stable_order(data, false);
        T value;
        int64_t index;
        kthvalue(dtype_v<T>, {{}, n}, k, {data.data()}, {&value}, {&index});
        ASSERT_TRUE(equivalent(value, data[order[k - 1]]));
        ASSERT_TRUE(same_bits(value, data[index]));
        kthvalue(dtype_v<T>, {{}, n}, k, {data.data()}, {&value}, {});
        ASSERT_TRUE(equivalent(value, data[order[k - 1]]));
      }
    }
  }
}

TYPED_TEST(OrderedDTypes, MedianIsTheLowerOne) {
  using T = TypeParam;
  for (int64_t n : {1, 2, 3, 30, 31, 1000, 20000}) {
    for (Fill fill : kFills) {
      const std::vector<T> data = make_data<T>(n, fill, n);
      const std::vector<int64_t> order = stable_order(data, false);
      const int64_t numbers = std::count_if(data.begin(), data.end(), [](T x) { return !is_nan(x); });
      T value;
      int64_t index;
      median(dtype_v<T>, {{}, n}, NanPolicy::Propagate, {data.data()}, {&value}, {&index});
      ASSERT_TRUE(same_bits(value, data[index]));
      if (numbers < n) {
        ASSERT_EQ(index, std::find_if(data.begin(), data.end(), is_nan<T>) - data.begin());
      } else {
        ASSERT_TRUE(equivalent(value, data[order[(n - 1) / 2]]));
      }
      median(dtype_v<T>, {{}, n}, NanPolicy::Ignore, {data.data()}, {&value}, {&index});
      ASSERT_TRUE(same_bits(value, data[index]));
      ASSERT_TRUE(equivalent(value, data[order[numbers == 0 ? 0 : (numbers - 1) / 2]]));
    }
  }
}

TYPED_TEST(OrderedDTypes, ModeIsTheSmallestMostFrequent) {
  using T = TypeParam;
  for (int64_t n : {1, 2, 3, 16, 17, 1000}) {
    for (Fill fill : kFills) {
      const std::vector<T> data = make_data<T>(n, fill, n);
      const auto compare = [](T a, T b) { return less_than(a, b); };
      std::map<T, int64_t, decltype(compare)> counts(compare);
      for (T x : data) ++counts[x];
      auto best = counts.begin();
      for (auto it = counts.begin(); it != counts.end(); ++it) {
        if (it->second > best->second) best = it;
      }
      T value;
      int64_t index;
      mode(dtype_v<T>, {{}, n}, {data.data()}, {&value}, {&index});
      ASSERT_TRUE(equivalent(value, best->first));
      ASSERT_TRUE(same_bits(value, data[index]));
      if (n <= 16) {
        for (int64_t i = index + 1; i < n; ++i) ASSERT_FALSE(equivalent(value, data[i]));
      }
    }
  }
}

TYPED_TEST(OrderedDTypes, SearchsortedFindsBothSides) {
  using T = TypeParam;
  set_num_threads(3);
  for (int64_t n : {0, 1, 2, 37, 1000}) {
    for (Fill fill : kFills) {
      std::vector<T> data = make_data<T>(n, fill, n);
      std::erase_if(data, is_nan<T>);
      const int64_t count = static_cast<int64_t>(data.size());
      const std::vector<int64_t> sorter = stable_order(data, false);
      std::vector<T> sorted(count);
      for (int64_t i = 0; i < count; ++i) sorted[i] = data[sorter[i]];
      const std::vector<T> queries = make_data<T>(5000, fill, n + 1);
      for (SearchSide side : {SearchSide::Left, SearchSide::Right}) {
        std::vector<int64_t> positions(5000), by_sorter(5000);
        std::vector<int32_t> narrow(5000);
        searchsorted<int64_t>(dtype_v<T>, {{}, count}, {sorted.data()}, {}, 5000, {queries.data()}, {positions.data()},
                              side);
        searchsorted<int64_t>(dtype_v<T>, {{}, count}, {data.data()}, {sorter.data()}, 5000, {queries.data()},
                              {by_sorter.data()}, side);
        searchsorted<int32_t>(dtype_v<T>, {{}, count}, {sorted.data()}, {}, 5000, {queries.data()}, {narrow.data()},
                              side);
        for (int64_t i = 0; i < 5000; ++i) {
          const auto expected = side == SearchSide::Left
                                    ? std::lower_bound(sorted.begin(), sorted.end(), queries[i], less_than<T>)
                                    : std::upper_bound(sorted.begin(), sorted.end(), queries[i], less_than<T>);
          ASSERT_EQ(positions[i], expected - sorted.begin());
          ASSERT_EQ(by_sorter[i], positions[i]);
          ASSERT_EQ(narrow[i], positions[i]);
        }
      }
    }
  }
}

TYPED_TEST(OrderedDTypes, UniqueGroupsEqualValues) {
  using T = TypeParam;
  for (int64_t n : {0, 1, 2, 40, 1000, 20000}) {
    for (Fill fill : kFills) {
      const std::vector<T> data = make_data<T>(n, fill, n);
      const std::vector<int64_t> order = stable_order(data, false);
      std::vector<T> expected;
      std::vector<int64_t> expected_inverse(n), expected_counts;
      for (int64_t i = 0; i < n; ++i) {
        const T x = data[order[i]];
        if (i == 0 || is_nan(x) || less_than(expected.back(), x)) {
          expected.push_back(x);
          expected_counts.push_back(0);
        }
        ++expected_counts.back();
        expected_inverse[order[i]] = static_cast<int64_t>(expected.size()) - 1;
      }
      std::vector<T> values(n);
      std::vector<int64_t> inverse(n), counts(n);
      const int64_t count = unique(dtype_v<T>, data.data(), n, values.data(), inverse.data(), counts.data());
      ASSERT_EQ(count, static_cast<int64_t>(expected.size()));
      for (int64_t i = 0; i < count; ++i) ASSERT_TRUE(same_bits(values[i], expected[i]));
      counts.resize(count);
      EXPECT_EQ(counts, expected_counts);
      EXPECT_EQ(inverse, expected_inverse);

      ASSERT_EQ(unique(dtype_v<T>, data.data(), n, values.data(), nullptr, nullptr), count);
      for (int64_t i = 0; i < count; ++i) ASSERT_TRUE(same_bits(values[i], expected[i]));
    }
  }
}

TEST(UniqueConsecutive, ComparesNeighboursOnly) {
  const float data[] = {NAN, NAN, -0.0f, 0.0f, 1, 1, 0};
  float values[7];
  int64_t inverse[7], counts[7];
  ASSERT_EQ(unique_consecutive(DType::Float32, data, 7, values, inverse, counts), 5);
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  EXPECT_TRUE(std::signbit(values[2]));
  EXPECT_EQ(values[3], 1);
  EXPECT_EQ(values[4], 0);
  EXPECT_EQ(std::vector<int64_t>(inverse, inverse + 7), (std::vector<int64_t>{0, 1, 2, 2, 3, 3, 4}));
  EXPECT_EQ(std::vector<int64_t>(counts, counts + 5), (std::vector<int64_t>{1, 1, 2, 2, 1}));
}

TEST(Searchsorted, RowsMayShareOrOwnTheirBoundaries) {
  const double boundaries[] = {1, 3, 5, 2, 4, 6};
  const double queries[] = {0, 3, 6, 3, 4, 7};
  const int64_t batch[] = {2}, own[] = {3}, shared[] = {0};
  int64_t positions[6];
  const RowShape shape{batch, 3};
  searchsorted<int64_t>(DType::Float64, shape, {boundaries, own}, {}, 3, {queries, own}, {positions, own},
                        SearchSide::Left);
  EXPECT_EQ(std::vector<int64_t>(positions, positions + 6), (std::vector<int64_t>{0, 1, 3, 1, 1, 3}));
  searchsorted<int64_t>(DType::Float64, shape, {boundaries, shared}, {}, 3, {queries, own}, {positions, own},
                        SearchSide::Right);
  EXPECT_EQ(std::vector<int64_t>(positions, positions + 6), (std::vector<int64_t>{0, 2, 3, 2, 2, 3}));
}

TEST(Searchsorted, NanQueriesComeAfterEverything) {
  const float boundaries[] = {1, 2, INFINITY};
  const float query = NAN;
  int64_t position = -1;
  searchsorted<int64_t>(DType::Float32, {{}, 3}, {boundaries}, {}, 1, {&query}, {&position}, SearchSide::Left);
  EXPECT_EQ(position, 3);
}

TEST(Sort, BoolIsOrdered) {
  const bool data[] = {true, false, true, false};
  bool values[4];
  int64_t indices[4];
  sort(DType::Bool, {{}, 4}, {data}, {values}, {indices}, true);
  EXPECT_EQ(std::vector<int64_t>(indices, indices + 4), (std::vector<int64_t>{0, 2, 1, 3}));
  EXPECT_TRUE(values[0] && values[1] && !values[2] && !values[3]);
}

// Keys that agree in their upper half in one long run, long enough to be shared among threads.
TEST(Sort, LongRunsOfEqualUpperHalves) {
  set_num_threads(3);
  const int64_t n = 200000;
  std::vector<int64_t> data(n);
  std::mt19937_64 random(5);
  for (int64_t& x : data) x = static_cast<int64_t>(random() >> 33);
  data[77] = std::numeric_limits<int64_t>::max();
  data[78] = std::numeric_limits<int64_t>::min();
  std::vector<int64_t> indices(n);
  sort(DType::Int64, {{}, n}, {data.data()}, {}, {indices.data()}, false);
  EXPECT_EQ(indices, stable_order(data, false));
  set_num_threads(1);
  sort(DType::Int64, {{}, n}, {data.data()}, {}, {indices.data()}, true);
  EXPECT_EQ(indices, stable_order(data, true));
}

TEST(Sort, ManyShortRows) {
  set_num_threads(3);
  const int64_t rows = 5000, n = 7;
  const std::vector<float> data = make_data<float>(rows * n, Fill::Special, 11);
  std::vector<float> values(rows * n);
  std::vector<int64_t> indices(rows * n);
  const int64_t batch[] = {50, 100}, strides[] = {100 * n, n};
  sort(DType::Float32, {batch, n}, {data.data(), strides}, {values.data(), strides}, {indices.data(), strides}, false);
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<float> row(data.begin() + r * n, data.begin() + (r + 1) * n);
    const std::vector<int64_t> expected = stable_order(row, false);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(indices[r * n + i], expected[i]);
      ASSERT_TRUE(same_bits(values[r * n + i], row[expected[i]]));
    }
  }
}

TEST(Sort, EmptyBatchesAndUnorderedDTypes) {
  const int64_t batch[] = {0, 4}, strides[] = {4, 1};
  float nothing;
  int64_t no_index;
  sort(DType::Float32, {batch, 5}, {&nothing, strides}, {&nothing, strides}, {&no_index, strides}, false);
  topk(DType::Float32, {batch, 5}, 3, {&nothing, strides}, {&nothing, strides}, {&no_index, strides}, true, true);
  median(DType::Float32, {batch, 0}, NanPolicy::Ignore, {&nothing, strides}, {&nothing, strides}, {&no_index, strides});
  const complex64 z[2] = {};
  complex64 out[2];
  int64_t indices[2];
  EXPECT_THROW(sort(DType::Complex64, {{}, 2}, {z}, {out}, {indices}, false), Error);
  EXPECT_THROW(topk(DType::Float32, {{}, 2}, 3, {z}, {out}, {indices}, true, true), Error);
  EXPECT_THROW(kthvalue(DType::Float32, {{}, 2}, 0, {z}, {out}, {indices}), Error);
  EXPECT_THROW(mode(DType::Float32, {{}, 0}, {z}, {out}, {indices}), Error);
}

}  // namespace
}  // namespace mica::cpu
