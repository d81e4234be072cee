#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/host_data.h"
#include "data/random_seed.h"
#include "mica/data.h"
#include "mica/ops.h"
#include "mica/values.h"

namespace mica::data {

namespace {

std::vector<int64_t> values(const Tensor& t) {
  const auto* begin = host_data<int64_t>(t);
  return {begin, begin + t.numel()};
}

std::vector<int64_t> permutation(int64_t n, const std::optional<Generator>& generator) {
  return values(randperm(n, generator, TensorOptions(DType::Int64).device(kCPU)));
}

}  // namespace

// ---- datasets

Example collate(const std::vector<Example>& samples) {
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

Example Dataset::get_batch(IntArrayRef indices) const {
  std::vector<Example> samples;
  for (const int64_t index : indices) samples.push_back(get(index));
  return collate(samples);
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
  Tensor index = empty({static_cast<int64_t>(indices.size())}, TensorOptions(DType::Int64).device(kCPU));
  std::copy(indices.begin(), indices.end(), host_data<int64_t>(index));
  Example batch;
  for (const Tensor& t : tensors_) batch.push_back(t.index_select(0, index.to(TensorOptions(t.device()))));
  return batch;
}

Subset::Subset(std::shared_ptr<Dataset> dataset, std::vector<int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {}

Example Subset::get_batch(IntArrayRef indices) const {
  std::vector<int64_t> mapped;
  for (const int64_t index : indices) mapped.push_back(indices_.at(static_cast<size_t>(index)));
  return dataset_->get_batch(mapped);
}

ConcatDataset::ConcatDataset(std::vector<std::shared_ptr<Dataset>> datasets) : datasets_(std::move(datasets)) {
  MICA_CHECK_KIND(!datasets_.empty(), Value, "datasets should not be an empty iterable");
  int64_t end = 0;
  for (const auto& dataset : datasets_) ends_.push_back(end += dataset->size());
}
Example ConcatDataset::get(int64_t index) const {
  MICA_CHECK_KIND(index >= 0 && index < size(), Index, "sample ", index, " of a dataset that has ", size());
  const auto which = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  return datasets_[which]->get(which == 0 ? index : index - ends_[which - 1]);
}

// Rounds the lengths down and gives the remaining samples to the first parts, one each, as Python does.
std::vector<std::shared_ptr<Subset>> random_split_by_share(const std::shared_ptr<Dataset>& dataset,
                                                           const std::vector<double>& shares,
                                                           std::optional<Generator> generator) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  MICA_CHECK_KIND(std::abs(sum - 1) < 1e-9, Value, "the shares of a dataset must sum to 1, but sum to ", sum);
  std::vector<int64_t> lengths;
  int64_t left = dataset->size();
  for (size_t i = 0; i < shares.size(); ++i) {
    MICA_CHECK_KIND(shares[i] >= 0 && shares[i] <= 1, Value, "Fraction at index ", i, " is not between 0 and 1");
    lengths.push_back(static_cast<int64_t>(std::floor(static_cast<double>(dataset->size()) * shares[i])));
    left -= lengths.back();
  }
  for (int64_t i = 0; i < left; ++i) ++lengths[static_cast<size_t>(i) % lengths.size()];
  return random_split(dataset, lengths, std::move(generator));
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
  Tensor seed = empty(IntArrayRef{}, TensorOptions(DType::Int64).device(kCPU));
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
  // When the last permutation is whole, one more than needed is drawn: the stream then stays in step with Python's.
  for (int64_t i = 0; i <= num_samples_ / size_; ++i) {
    const auto drawn = permutation(size_, generator);
    all.insert(all.end(), drawn.begin(), drawn.end());
  }
  all.resize(wanted);
  return all;
}

std::vector<int64_t> SubsetRandomSampler::order() {
  std::vector<int64_t> all;
  for (const int64_t i : permutation(size(), generator_)) all.push_back(indices_[static_cast<size_t>(i)]);
  return all;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, bool replacement,
                                             std::optional<Generator> generator)
    : weights_(tensor(weights, TensorOptions(DType::Float64).device(kCPU))),
      num_samples_(num_samples),
      replacement_(replacement),
      generator_(std::move(generator)) {
  MICA_CHECK_KIND(num_samples > 0, Value,
                  "num_samples should be a positive integer value, but got num_samples=", num_samples);
}
std::vector<int64_t> WeightedRandomSampler::order() {
  return values(multinomial(weights_, num_samples_, replacement_, generator_));
}

BatchSampler::BatchSampler(std::shared_ptr<Sampler> sampler, int64_t batch_size, bool drop_last)
    : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
  MICA_CHECK_KIND(sampler_ != nullptr, Value, "a BatchSampler needs a sampler");
  MICA_CHECK_KIND(batch_size > 0, Value,
                  "batch_size should be a positive integer value, but got batch_size=", batch_size);
}
int64_t BatchSampler::size() const {
  const int64_t n = sampler_->size();
  return drop_last_ ? n / batch_size_ : (n + batch_size_ - 1) / batch_size_;
}
std::vector<std::vector<int64_t>> BatchSampler::batches() {
  const std::vector<int64_t> order = sampler_->order();
  std::vector<std::vector<int64_t>> all;
  const auto step = static_cast<size_t>(batch_size_);
  for (size_t begin = 0; begin < order.size(); begin += step) {
    const size_t end = std::min(begin + step, order.size());
    if (drop_last_ && end - begin < step) break;
    all.emplace_back(order.begin() + static_cast<ptrdiff_t>(begin), order.begin() + static_cast<ptrdiff_t>(end));
  }
  return all;
}

}  // namespace mica::data
