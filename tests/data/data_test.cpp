// Data loading from C++. The orders are those of torch: see tests/recorded/data.json.
#include "mica/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "mica/mica.h"

namespace mica::data {
namespace {

std::vector<int64_t> numbers(const Tensor& t) {
  std::vector<int64_t> v;
  for (int64_t i = 0; i < t.numel(); ++i) v.push_back(t.reshape({-1})[i].item().to<int64_t>());
  return v;
}

std::vector<int64_t> all_of(DataLoader& loader) {
  std::vector<int64_t> seen;
  for (Example& batch : loader)
    for (const int64_t v : numbers(batch[0])) seen.push_back(v);
  return seen;
}

std::shared_ptr<TensorDataset> counting(int64_t n) {
  return std::make_shared<TensorDataset>(Example{arange(0, n), arange(0, n) * 2});
}

TEST(DataLoader, GivesBatchesInOrder) {
  for (const int workers : {0, 1, 3}) {
    DataLoader loader(counting(10), {.batch_size = 4, .workers = workers});
    EXPECT_EQ(loader.size(), 3);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> sizes;
      for (Example& batch : loader) {
        sizes.push_back(batch[0].size(0));
        EXPECT_TRUE(equal(batch[0] * 2, batch[1]));
      }
      EXPECT_EQ(sizes, (std::vector<int64_t>{4, 4, 2}));
    }
    EXPECT_EQ(all_of(loader), SequentialSampler(10).order());
  }
  DataLoader dropping(counting(10), {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(all_of(dropping).size(), 8u);
  DataLoader nothing(counting(3), {.batch_size = 4, .drop_last = true, .workers = 2});
  EXPECT_EQ(all_of(nothing).size(), 0u);
}

TEST(DataLoader, ShufflesAsPythonDoes) {
  default_generator().manual_seed(11);
  DataLoader loader(counting(17), {.batch_size = 4, .shuffle = true, .workers = 2});
  // "tensors" in tests/recorded/data.json: two epochs, then what is left of the stream.
  const std::vector<int64_t> first = all_of(loader), second = all_of(loader);
  EXPECT_EQ(first, (std::vector<int64_t>{16, 14, 3, 6, 9, 7, 4, 0, 11, 8, 10, 13, 15, 5, 12, 1, 2}));
  EXPECT_EQ(second, (std::vector<int64_t>{7, 16, 0, 14, 1, 15, 3, 11, 13, 6, 12, 4, 2, 8, 10, 5, 9}));
}

TEST(RandomSampler, CountsAndReplaces) {
  std::vector<int64_t> order = RandomSampler(6, false, 15).order();
  EXPECT_EQ(order.size(), 15u);
  std::sort(order.begin(), order.begin() + 6);
  EXPECT_EQ(std::vector<int64_t>(order.begin(), order.begin() + 6), SequentialSampler(6).order());
  EXPECT_EQ(RandomSampler(3, true, 70).order().size(), 70u);
  EXPECT_EQ(RandomSampler(9, false, {}, Generator(3)).order(), RandomSampler(9, false, {}, Generator(3)).order());
  EXPECT_THROW(RandomSampler(0), Error);
}

TEST(RandomSplit, PartsShareNothing) {
  const auto parts = random_split(counting(10), {3, 7}, Generator(1));
  DataLoader loader(parts[1], {.batch_size = 7});
  const std::vector<int64_t> seen = all_of(loader);
  EXPECT_EQ(seen, parts[1]->indices());
  for (const int64_t i : parts[0]->indices()) EXPECT_EQ(std::count(seen.begin(), seen.end(), i), 0);
  EXPECT_THROW(random_split(counting(10), {3, 3}), Error);
}

TEST(RandomSplit, ByShare) {
  const auto parts = random_split_by_share(counting(10), {0.5, 0.25, 0.25}, Generator(1));
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0]->size(), 6);  // the samples that rounding leaves over go to the first parts
  EXPECT_EQ(parts[1]->size() + parts[2]->size(), 4);
  EXPECT_THROW(random_split_by_share(counting(10), {0.5, 0.2}), Error);
}

TEST(Datasets, OneAfterTheOtherAndMapped) {
  const auto both = std::make_shared<ConcatDataset>(std::vector<std::shared_ptr<Dataset>>{counting(2), counting(3)});
  DataLoader loader(both, {.batch_size = 5});
  EXPECT_EQ(all_of(loader), (std::vector<int64_t>{0, 1, 0, 1, 2}));
  EXPECT_THROW(both->get(5), Error);
  EXPECT_THROW(ConcatDataset({}), Error);
  DataLoader doubled(std::make_shared<MappedDataset>(counting(3), [](Example e) { return Example{e[0] * 2}; }),
                     {.batch_size = 2});
  EXPECT_EQ(all_of(doubled), (std::vector<int64_t>{0, 2, 4}));
}

TEST(Samplers, OfSubsetsAndByWeight) {
  manual_seed(0);  // as torch.manual_seed(0), list(SubsetRandomSampler(...)), list(WeightedRandomSampler(...))
  EXPECT_EQ(SubsetRandomSampler({10, 20, 30, 40, 50}).order(), (std::vector<int64_t>{50, 10, 20, 40, 30}));
  EXPECT_EQ(WeightedRandomSampler({1, 0, 2, 0, 5}, 8).order(), (std::vector<int64_t>{4, 4, 4, 4, 2, 2, 4, 2}));
  EXPECT_EQ(WeightedRandomSampler({1, 0, 2}, 2, false).order().size(), 2u);
  EXPECT_THROW(WeightedRandomSampler({1}, 0), Error);
}

// Samples of one length together.
class ByLength : public BatchSampler {
 public:
  int64_t size() const override { return 2; }
  std::vector<std::vector<int64_t>> batches() override { return {{0, 2, 4}, {1, 3}}; }
};

TEST(DataLoader, BatchesAndCollationOfOnesOwn) {
  DataLoader loader(counting(5), {.batch_sampler = std::make_shared<ByLength>()});
  EXPECT_EQ(all_of(loader), (std::vector<int64_t>{0, 2, 4, 1, 3}));
  EXPECT_EQ(loader.size(), 2);
  EXPECT_THROW(DataLoader(counting(5), {.batch_size = 2, .batch_sampler = std::make_shared<ByLength>()}), Error);
  for (const int workers : {0, 2}) {
    DataLoader summed(
        counting(5),
        {.batch_size = 2, .drop_last = true, .workers = workers, .collate = [](const std::vector<Example>& samples) {
           return Example{(samples[0][0] + samples[1][0]).view({1})};
         }});
    EXPECT_EQ(all_of(summed), (std::vector<int64_t>{1, 5}));
  }
}

class Failing : public Dataset {
 public:
  mutable std::atomic<int> calls{0};
  int64_t size() const override { return 100; }
  Example get(int64_t i) const override {
    ++calls;
    MICA_CHECK(i != 13, "sample 13 is bad");
    return {full({2}, static_cast<double>(i))};
  }
};

TEST(DataLoader, ThrowsWhereTheBatchIsAsked) {
  for (const int workers : {0, 2}) {
    DataLoader loader(std::make_shared<Failing>(), {.batch_size = 4, .workers = workers});
    int batches = 0;
    EXPECT_THROW(
        {
          for ([[maybe_unused]] Example& batch : loader) ++batches;
        },
        Error);
    EXPECT_EQ(batches, 3);
  }
}

TEST(DataLoader, CanBeLeftInTheMiddle) {
  const auto dataset = std::make_shared<Failing>();
  DataLoader loader(dataset, {.batch_size = 1, .workers = 2, .prefetch = 2});
  for ([[maybe_unused]] Example& batch : loader) break;
  EXPECT_LE(dataset->calls, 6);  // not more than it was to prefetch
}

TEST(TensorDataset, ChecksItsTensors) {
  EXPECT_THROW(TensorDataset(Example{ones({2}), ones({3})}), Error);
  EXPECT_THROW(TensorDataset(Example{}), Error);
}

}  // namespace
}  // namespace mica::data
