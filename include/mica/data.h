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

// Samples by index. get() may be called from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual Example get(int64_t index) const = 0;
  // Many samples as one batch; by default each tensor is stacked along a new first dimension.
  virtual Example get_batch(IntArrayRef indices) const;
};

// Rows of tensors, which have equally many.
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

// Random parts that share nothing; the lengths sum to the dataset's.
std::vector<std::shared_ptr<Subset>> random_split(const std::shared_ptr<Dataset>& dataset,
                                                  const std::vector<int64_t>& lengths,
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

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;
  int workers = 0;   // threads; 0: batches are made when they are asked for
  int prefetch = 2;  // batches ahead, for each worker
  std::optional<Generator> generator = std::nullopt;
  std::shared_ptr<Sampler> sampler = nullptr;  // instead of shuffle
};

// Batches of a dataset, in order whoever makes them: `for (auto& batch : loader) { auto& x = batch[0]; ... }`. An
// exception in a worker comes out of the loop at the batch that it belongs to.
class DataLoader {
 public:
  explicit DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options = {});

  int64_t size() const;  // batches of an epoch

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
