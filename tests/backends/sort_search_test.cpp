// Selecting (kthvalue, median, mode), searching and the distinct values.
#include <algorithm>
#include <map>

#include "tests/backends/sort_test_data.h"

namespace mica::cpu::sort_test {
namespace {

template <class T>
class Searching : public OrderedDTypes<T> {};
TYPED_TEST_SUITE(Searching, ElementTypes);

TYPED_TEST(Searching, KthvalueHasTheRank) {
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

TYPED_TEST(Searching, MedianIsTheLowerOne) {
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

TYPED_TEST(Searching, ModeIsTheSmallestMostFrequent) {
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

TYPED_TEST(Searching, SearchsortedFindsBothSides) {
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

TYPED_TEST(Searching, UniqueGroupsEqualValues) {
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

TEST(OrderRows, IsLexicographicAndKeepsEqualRowsInPlace) {
  const int64_t rows = 40, width = 3;
  std::vector<int32_t> data(rows * width);
  for (int64_t i = 0; i < rows * width; ++i) data[i] = static_cast<int32_t>(i * i * 7 % 3) - 1;
  std::vector<int64_t> places(rows), expected(rows);
  for (int64_t i = 0; i < rows; ++i) expected[i] = i;
  std::stable_sort(expected.begin(), expected.end(), [&](int64_t a, int64_t b) {
    return std::lexicographical_compare(&data[a * width], &data[a * width] + width, &data[b * width],
                                        &data[b * width] + width);
  });
  order_rows(DType::Int32, data.data(), rows, width, places.data());
  EXPECT_EQ(places, expected);
}

TEST(OrderRows, ANanDecidesNothing) {
  const float data[] = {1, NAN, 1, NAN, 0, 2, NAN, 1, NAN, 1};
  int64_t places[5];
  order_rows(DType::Float32, data, 5, 2, places);
  EXPECT_EQ(std::vector<int64_t>(places, places + 5), (std::vector<int64_t>{3, 2, 0, 1, 4}));
  const std::vector<double> many(200, NAN);
  std::vector<int64_t> order(100);
  order_rows(DType::Float64, many.data(), 100, 2, order.data());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
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

}  // namespace
}  // namespace mica::cpu::sort_test
