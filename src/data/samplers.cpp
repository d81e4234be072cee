#include <algorithm>
#include <numeric>

#include "data/random_seed.h"
#include "mica/data.h"
#include "mica/ops.h"

namespace mica::data {

namespace {

std::vector<int64_t> values(const Tensor& t) {
  const auto* begin = t.data_ptr<int64_t>();
  return {begin, begin + t.numel()};
}

std::vector<int64_t> permutation(int64_t n, const std::optional<Generator>& generator) {
  return values(randperm(n, generator, DType::Int64));
}

}  // namespace

// ---- datasets

Example Dataset::get_batch(IntArrayRef indices) const {
  std::vector<Example> samples;
  for (const int64_t index : indices) samples.push_back(get(index));
  Example batch;
  for (size_t part = 0; !samples.empty() && part < samples[0].size(); ++part) {
    std::vector<Tensor> column;
    for (const Example& sample : samples) {
      MICA_CHECK(sample.size() == samples[0].size(), "samples of one batch have ", samples[0].size(), " and ",
                 sample.size(), " tensors");
      column.push_back(sample[part]);
    }
    batch.push_back(stack(column));
  }
  return batch;
}

TensorDataset::TensorDataset(Example tensors) : tensors_(std::move(tensors)) {
  MICA_CHECK_KIND(!tensors_.empty(), Value, "a TensorDataset needs a tensor");
  for (const Tensor& t : tensors_)
    MICA_CHECK_KIND(t.dim() > 0 && t.size(0) == tensors_[0].size(0), Value, "Size mismatch between tensors: ", t,
                    " and ", tensors_[0]);
}

Example TensorDataset::get(int64_t index) const {
  Example sample;
  for (const Tensor& t : tensors_) sample.push_back(t.select(0, index));
  return sample;
}

Example TensorDataset::get_batch(IntArrayRef indices) const {
  Tensor index = empty({static_cast<int64_t>(indices.size())}, DType::Int64);
  std::copy(indices.begin(), indices.end(), index.data_ptr<int64_t>());
  Example batch;
  for (const Tensor& t : tensors_) batch.push_back(t.index_select(0, index));
  return batch;
}

Subset::Subset(std::shared_ptr<Dataset> dataset, std::vector<int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {}

Example Subset::get_batch(IntArrayRef indices) const {
  std::vector<int64_t> mapped;
  for (const int64_t index : indices) mapped.push_back(indices_.at(static_cast<size_t>(index)));
  return dataset_->get_batch(mapped);
}

std::vector<std::shared_ptr<Subset>> random_split(const std::shared_ptr<Dataset>& dataset,
                                                  const std::vector<int64_t>& lengths,
                                                  std::optional<Generator> generator) {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  MICA_CHECK_KIND(total == dataset->size(), Value,
                  "Sum of input lengths does not equal the length of the input dataset! ", total, " and ",
                  dataset->size());
  const std::vector<int64_t> order = permutation(total, generator);
  std::vector<std::shared_ptr<Subset>> parts;
  auto begin = order.begin();
  for (const int64_t length : lengths) {
    MICA_CHECK_KIND(length >= 0, Value, "a part of ", length, " samples");
    parts.push_back(std::make_shared<Subset>(dataset, std::vector<int64_t>(begin, begin + length)));
    begin += length;
  }
  return parts;
}

// ---- samplers

std::vector<int64_t> SequentialSampler::order() {
  std::vector<int64_t> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

RandomSampler::RandomSampler(int64_t size, bool replacement, std::optional<int64_t> num_samples,
                             std::optional<Generator> generator)
    : size_(size),
      replacement_(replacement),
      num_samples_(num_samples.value_or(size)),
      generator_(std::move(generator)) {
  MICA_CHECK_KIND(num_samples_ > 0, Value,
                  "num_samples should be a positive integer value, but got num_samples=", num_samples_);
}

uint64_t random_seed(const std::optional<Generator>& generator) {
  Tensor seed = empty(IntArrayRef{}, DType::Int64);
  seed.random_(generator);
  return static_cast<uint64_t>(seed.item<int64_t>());
}

std::vector<int64_t> RandomSampler::order() {
  const std::optional<Generator> generator = generator_ ? generator_ : Generator(random_seed({}));
  std::vector<int64_t> all;
  const auto wanted = static_cast<size_t>(num_samples_);
  if (replacement_) {
    while (all.size() < wanted) {
      const int64_t count = std::min<int64_t>(32, num_samples_ - static_cast<int64_t>(all.size()));
      const auto drawn = values(randint(size_, {count}, generator, DType::Int64));
      all.insert(all.end(), drawn.begin(), drawn.end());
    }
    return all;
  }
  // One permutation more than is needed when the last is whole: the stream then stays in step with Python's.
  for (int64_t i = 0; i <= num_samples_ / size_; ++i) {
    const auto drawn = permutation(size_, generator);
    all.insert(all.end(), drawn.begin(), drawn.end());
  }
  all.resize(wanted);
  return all;
}

}  // namespace mica::data
