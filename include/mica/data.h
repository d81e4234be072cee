// Data for training, in C++: datasets, samplers and a loader that makes batches in threads. From the same seed the
// samplers give the same order as Python's, and torch's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mica/generator.h"
#include "mica/tensor.h"

namespace mica::data {

// A sample or a batch: tensors side by side, say an image and its label.
using Example = std::vector<Tensor>;

// One batch of samples that have equally many tensors: each is stacked along a new first dimension.
Example collate(const std::vector<Example>& samples);

// Samples by index. get() may be called from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual Example get(int64_t index) const = 0;
  virtual Example get_batch(IntArrayRef indices) const;  // many samples as one batch; by default they are collated
};

// The rows of tensors, all of which have the same number of rows.
class TensorDataset : public Dataset {
 public:
  explicit TensorDataset(Example tensors);
  int64_t size() const override { return tensors_[0].size(0); }
  Example get(int64_t index) const override;
  Example get_batch(IntArrayRef indices) const override;
  const Example& tensors() const { return tensors_; }

 private:
  Example tensors_;
};

// The samples of another dataset at some indices.
class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<Dataset> dataset, std::vector<int64_t> indices);
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Example get(int64_t index) const override { return dataset_->get(indices_.at(static_cast<size_t>(index))); }
  Example get_batch(IntArrayRef indices) const override;
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  std::shared_ptr<Dataset> dataset_;
  std::vector<int64_t> indices_;
};

// The samples of several datasets, one after the other.
class ConcatDataset : public Dataset {
 public:
  explicit ConcatDataset(std::vector<std::shared_ptr<Dataset>> datasets);
  int64_t size() const override { return ends_.back(); }
  Example get(int64_t index) const override;

 private:
  std::vector<std::shared_ptr<Dataset>> datasets_;
  std::vector<int64_t> ends_;  // where the samples of each dataset end among all
};

// The samples of another dataset, each changed by a function.
class MappedDataset : public Dataset {
 public:
  MappedDataset(std::shared_ptr<Dataset> dataset, std::function<Example(Example)> function)
      : dataset_(std::move(dataset)), function_(std::move(function)) {}
  int64_t size() const override { return dataset_->size(); }
  Example get(int64_t index) const override { return function_(dataset_->get(index)); }

 private:
  std::shared_ptr<Dataset> dataset_;
  std::function<Example(Example)> function_;
};

// Random parts that share nothing; the lengths sum to the dataset's.
std::vector<std::shared_ptr<Subset>> random_split(const std::shared_ptr<Dataset>& dataset,
                                                  const std::vector<int64_t>& lengths,
                                                  std::optional<Generator> generator = {});
// The same by shares, which sum to 1, say {0.8, 0.2}.
std::vector<std::shared_ptr<Subset>> random_split_by_share(const std::shared_ptr<Dataset>& dataset,
                                                           const std::vector<double>& shares,
                                                           std::optional<Generator> generator = {});

// The order of one epoch.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t size() const = 0;
  virtual std::vector<int64_t> order() = 0;  // draws anew in each call
};

class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> order() override;

 private:
  int64_t size_;
};

// All indices in random order, or `num_samples` of them. Without a generator each epoch seeds one of its own from the
// global stream, as Python's does.
class RandomSampler : public Sampler {
 public:
  explicit RandomSampler(int64_t size, bool replacement = false, std::optional<int64_t> num_samples = {},
                         std::optional<Generator> generator = {});
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> order() override;

 private:
  int64_t size_;
  bool replacement_;
  int64_t num_samples_;
  std::optional<Generator> generator_;
};

// Some indices in random order.
class SubsetRandomSampler : public Sampler {
 public:
  explicit SubsetRandomSampler(std::vector<int64_t> indices, std::optional<Generator> generator = {})
      : indices_(std::move(indices)), generator_(std::move(generator)) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  std::vector<int64_t> order() override;

 private:
  std::vector<int64_t> indices_;
  std::optional<Generator> generator_;
};

// Indices, each as likely as its weight says.
class WeightedRandomSampler : public Sampler {
 public:
  WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, bool replacement = true,
                        std::optional<Generator> generator = {});
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> order() override;

 private:
  Tensor weights_;
  int64_t num_samples_;
  bool replacement_;
  std::optional<Generator> generator_;
};

// The batches of one epoch, by the indices of their samples: those of a sampler, so many at a time.
class BatchSampler {
 public:
  BatchSampler(std::shared_ptr<Sampler> sampler, int64_t batch_size, bool drop_last = false);
  virtual ~BatchSampler() = default;
  virtual int64_t size() const;
  virtual std::vector<std::vector<int64_t>> batches();

 protected:
  BatchSampler() = default;  // for subclasses that make batches their own way

 private:
  std::shared_ptr<Sampler> sampler_;
  int64_t batch_size_ = 1;
  bool drop_last_ = false;
};

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;
  int workers = 0;   // threads; 0: batches are made when they are asked for
  int prefetch = 2;  // batches ahead, for each worker
  std::optional<Generator> generator = std::nullopt;
  std::shared_ptr<Sampler> sampler = nullptr;             // instead of shuffle
  std::shared_ptr<BatchSampler> batch_sampler = nullptr;  // instead of batch_size, shuffle, drop_last and sampler
  // Makes a batch of samples, where the dataset's get_batch is not wanted: say, pads them to one length.
  std::function<Example(const std::vector<Example>& samples)> collate = nullptr;
};

// Batches of a dataset: `for (auto& batch : loader) { auto& x = batch[0]; ... }`. They come in order, whichever worker
// makes them. An exception in a worker comes out of the loop at its batch.
class DataLoader {
 public:
  explicit DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options = {});

  int64_t size() const;  // the number of batches of an epoch

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Example;
    using difference_type = std::ptrdiff_t;
    using pointer = Example*;
    using reference = Example&;

    reference operator*() const;
    pointer operator->() const { return &**this; }
    Iterator& operator++();
    bool operator==(const Iterator& other) const;  // two that have ended are equal

   private:
    friend class DataLoader;
    struct Epoch;
    std::shared_ptr<Epoch> epoch_;  // null at the end
  };

  Iterator begin();  // starts an epoch
  Iterator end() { return {}; }

 private:
  std::shared_ptr<Dataset> dataset_;
  DataLoaderOptions options_;
};

}  // namespace mica::data
