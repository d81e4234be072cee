#include "backends/cpu/sort/sort.h"

#include "backends/cpu/sort/sort_row.h"
#include "tests/backends/sort_test_data.h"

namespace mica::cpu::sort_test {
namespace {

const std::vector<int64_t> kSizes = {0, 1, 2, 3, 31, 64, 65, 128, 129, 1000, 100000};

template <class T>
class Sorting : public OrderedDTypes<T> {};
TYPED_TEST_SUITE(Sorting, ElementTypes);

TYPED_TEST(Sorting, KeysKeepTheOrderAndInvert) {
  using T = TypeParam;
  for (Fill fill : {Fill::Random, Fill::Special}) {
    const std::vector<T> data = make_data<T>(300, fill, 7);
    for (T a : data) {
      EXPECT_TRUE(equivalent(value_of_key<T>(order_key(a)), a));
      for (T b : data) ASSERT_EQ(order_key(a) < order_key(b), less_than(a, b));
    }
  }
}

TYPED_TEST(Sorting, SortIsTheStableOrder) {
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

TYPED_TEST(Sorting, HugeRowsFollowTheSameOrder) {
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
TYPED_TEST(Sorting, SortTakesAnyStrides) {
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

TYPED_TEST(Sorting, TopkIsTheHeadOfTheStableOrder) {
  for (int64_t n : {1, 2, 31, 128, 129, 2000, 40000}) {
    for (int64_t k : {int64_t{1}, int64_t{7}, int64_t{50}, n / 3, n}) {
      if (k < 1 || k > n) continue;
      for (Fill fill : kFills) {
        for (bool largest : {true, false}) check_topk<TypeParam>(n, k, fill, largest);
      }
    }
  }
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
}  // namespace mica::cpu::sort_test
