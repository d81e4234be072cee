// Datasets and loaders as programs for libtorch write them. New programs have less to write with mica/data.h.
#pragma once

#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mica/data.h"
#include "torch/check.h"
#include "torch/settable.h"
#include "torch/types.h"

namespace torch::data {

template <class Data = Tensor, class Target = Tensor>
struct Example {
  Data data;
  Target target;
};
template <class Data>
struct Example<Data, void> {
  Data data;
};
using TensorExample = Example<Tensor, void>;

namespace datasets {

template <class Source, class Transform>
class MapDataset;

// Samples by index. A batch is the vector of its samples, until a transform makes something else of it.
template <class Self, class Sample = Example<>>
class Dataset {
 public:
  using ExampleType = Sample;
  using BatchType = std::vector<Sample>;
  virtual ~Dataset() = default;
  virtual Sample get(size_t index) = 0;
  virtual std::optional<size_t> size() const = 0;
  virtual BatchType get_batch(const std::vector<size_t>& indices) {
    BatchType batch;
    for (size_t index : indices) batch.push_back(get(index));
    return batch;
  }
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) && {
    return {std::move(static_cast<Self&>(*this)), std::move(transform)};
  }
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) & {
    return {static_cast<Self&>(*this), std::move(transform)};
  }
};

// The batches of another dataset, changed.
template <class Source, class Transform>
class MapDataset {
 public:
  using BatchType = decltype(std::declval<Transform&>().apply_batch(std::declval<typename Source::BatchType>()));
  MapDataset(Source source, Transform transform) : source_(std::move(source)), transform_(std::move(transform)) {}
  std::optional<size_t> size() const { return source_.size(); }
  BatchType get_batch(const std::vector<size_t>& indices) { return transform_.apply_batch(source_.get_batch(indices)); }
  template <class Next>
  MapDataset<MapDataset, Next> map(Next next) && {
    return {std::move(*this), std::move(next)};
  }
  template <class Next>
  MapDataset<MapDataset, Next> map(Next next) & {
    return {*this, std::move(next)};
  }

 private:
  Source source_;
  Transform transform_;
};

// The rows of a tensor.
class TensorDataset : public Dataset<TensorDataset, TensorExample> {
 public:
  explicit TensorDataset(Tensor tensor) : tensor_(std::move(tensor)) {}
  TensorExample get(size_t index) override { return {tensor_[static_cast<int64_t>(index)]}; }
  std::optional<size_t> size() const override { return static_cast<size_t>(tensor_.size(0)); }

 private:
  Tensor tensor_;
};

// Handwritten digits from the four files of their usual names: images in [0, 1] of (1, 28, 28), and labels.
class MNIST : public Dataset<MNIST> {
 public:
  enum class Mode { kTrain, kTest };
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain) : is_train_(mode == Mode::kTrain) {
    const std::string prefix = root + (is_train_ ? "/train" : "/t10k");
    images_ = read(prefix + "-images-idx3-ubyte", 3).unsqueeze(1).to(mica::DType::Float32) / 255;
    targets_ = read(prefix + "-labels-idx1-ubyte", 1).to(mica::DType::Int64);
    TORCH_CHECK(images_.size(0) == targets_.size(0), "MNIST has ", images_.size(0), " images and ", targets_.size(0),
                " labels");
  }
  Example<> get(size_t index) override {
    return {images_[static_cast<int64_t>(index)], targets_[static_cast<int64_t>(index)]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(images_.size(0)); }
  bool is_train() const { return is_train_; }
  const Tensor& images() const { return images_; }
  const Tensor& targets() const { return targets_; }

 private:
  // A file of bytes that begins with its magic number and its sizes, four bytes each, the highest first.
  static Tensor read(const std::string& path, unsigned dims) {
    std::ifstream file(path, std::ios::binary);
    TORCH_CHECK(file, "Error opening images file at ", path);
    const auto number = [&] {
      unsigned char bytes[4] = {};
      file.read(reinterpret_cast<char*>(bytes), 4);
      return int64_t{bytes[0]} << 24 | int64_t{bytes[1]} << 16 | int64_t{bytes[2]} << 8 | int64_t{bytes[3]};
    };
    TORCH_CHECK(number() == 0x800 + dims, path, " is not a file of MNIST");
    std::vector<int64_t> sizes;
    for (unsigned i = 0; i < dims; ++i) sizes.push_back(number());
    const int64_t begin = file.tellg(),
                  count = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    file.seekg(0, std::ios::end);
    TORCH_CHECK(file.tellg() - begin == count, path, " has not as many bytes as its sizes say");
    file.seekg(begin);
    Tensor values = mica::empty(sizes, mica::DType::UInt8);
    file.read(static_cast<char*>(values.data_ptr()), count);
    return values;
  }

  bool is_train_;
  Tensor images_, targets_;
};

}  // namespace datasets

namespace transforms {

// Changes a batch sample by sample: subclasses give apply(sample).
template <class Self, class Input = Example<>, class Output = Input>
class Transform {
 public:
  std::vector<Output> apply_batch(std::vector<Input> batch) {
    std::vector<Output> result;
    for (Input& sample : batch) result.push_back(static_cast<Self&>(*this).apply(std::move(sample)));
    return result;
  }
};

template <class Input, class Output = Input>
class Lambda : public Transform<Lambda<Input, Output>, Input, Output> {
 public:
  explicit Lambda(std::function<Output(Input)> function) : function_(std::move(function)) {}
  Output apply(Input sample) { return function_(std::move(sample)); }

 private:
  std::function<Output(Input)> function_;
};

template <class Input, class Output = Input>
class BatchLambda {
 public:
  explicit BatchLambda(std::function<Output(Input)> function) : function_(std::move(function)) {}
  Output apply_batch(Input batch) { return function_(std::move(batch)); }

 private:
  std::function<Output(Input)> function_;
};

// A function of each sample's tensor.
template <class Target = Tensor>
class TensorLambda : public Transform<TensorLambda<Target>, Example<Tensor, Target>> {
 public:
  explicit TensorLambda(std::function<Tensor(Tensor)> function) : function_(std::move(function)) {}
  Example<Tensor, Target> apply(Example<Tensor, Target> sample) {
    sample.data = function_(std::move(sample.data));
    return sample;
  }

 private:
  std::function<Tensor(Tensor)> function_;
};

// Subtracts the mean of each channel and divides by its deviation.
template <class Target = Tensor>
class Normalize : public Transform<Normalize<Target>, Example<Tensor, Target>> {
 public:
  Normalize(const std::vector<double>& mean, const std::vector<double>& stddev)
      : mean_(column(mean)), stddev_(column(stddev)) {}
  Normalize(double mean, double stddev) : Normalize(std::vector{mean}, std::vector{stddev}) {}
  Example<Tensor, Target> apply(Example<Tensor, Target> sample) {
    sample.data = (sample.data - mean_) / stddev_;
    return sample;
  }

 private:
  static Tensor column(const std::vector<double>& values) {
    return mica::tensor(values, mica::DType::Float32).view({-1, 1, 1});
  }
  Tensor mean_, stddev_;
};

// One sample of all: its tensors are stacked along a new first dimension.
template <class Sample = Example<>>
class Stack {
 public:
  Sample apply_batch(const std::vector<Sample>& batch) {
    std::vector<Tensor> data, targets;
    for (const Sample& sample : batch) {
      data.push_back(sample.data);
      if constexpr (requires { sample.target; }) targets.push_back(sample.target);
    }
    if constexpr (requires(Sample s) { s.target; })
      return {mica::stack(data), mica::stack(targets)};
    else
      return {mica::stack(data)};
  }
};

}  // namespace transforms

namespace samplers {
using mica::data::RandomSampler;
using mica::data::SequentialSampler;
}  // namespace samplers

// max_jobs, enforce_ordering and timeout of libtorch are left out: batches always come in order.
class DataLoaderOptions : public Settable<DataLoaderOptions, mica::data::DataLoaderOptions> {
 public:
  DataLoaderOptions(int64_t batch_size = 1) { this->batch_size(batch_size); }
};

// Batches of a dataset, in the sampler's order. With workers, so many batches are made ahead in threads of their own.
template <class Set, class Sampler>
class DataLoader {
 public:
  using BatchType = typename Set::BatchType;
  DataLoader(Set dataset, Sampler sampler, const mica::data::DataLoaderOptions& options)
      : dataset_(std::move(dataset)), sampler_(std::move(sampler)), options_(options) {
    TORCH_CHECK_VALUE(options_.batch_size > 0, "batch_size must be positive, but got ", options_.batch_size);
  }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = BatchType;
    using difference_type = std::ptrdiff_t;
    using pointer = BatchType*;
    using reference = BatchType&;
    Iterator() = default;
    explicit Iterator(DataLoader& loader) : loader_(&loader), order_(loader.sampler_.order()) { ++*this; }
    Iterator(Iterator&&) = default;
    Iterator& operator=(Iterator&&) = default;
    reference operator*() { return *batch_; }
    pointer operator->() { return &*batch_; }
    Iterator& operator++() {
      do pending_.push_back(queue_next());
      while (pending_.size() <= static_cast<size_t>(loader_->options_.workers) && pending_.back().valid());
      std::future<BatchType> first = std::move(pending_.front());
      pending_.pop_front();
      if (first.valid())
        batch_.emplace(first.get());
      else
        loader_ = nullptr;
      return *this;
    }
    bool operator==(const Iterator& other) const { return loader_ == other.loader_; }

   private:
    // The next batch to be made; nothing at the end.
    std::future<BatchType> queue_next() {
      const auto size = static_cast<size_t>(loader_->options_.batch_size),
                 count = std::min(size, order_.size() - next_);
      if (count == 0 || (count < size && loader_->options_.drop_last)) return {};
      std::vector<size_t> indices(order_.begin() + static_cast<std::ptrdiff_t>(next_),
                                  order_.begin() + static_cast<std::ptrdiff_t>(next_ + count));
      next_ += count;
      const auto policy = loader_->options_.workers > 0 ? std::launch::async : std::launch::deferred;
      return std::async(
          policy, [loader = loader_, indices = std::move(indices)] { return loader->dataset_.get_batch(indices); });
    }

    DataLoader* loader_ = nullptr;  // null at the end
    std::vector<int64_t> order_;
    size_t next_ = 0;
    std::deque<std::future<BatchType>> pending_;
    std::optional<BatchType> batch_;
  };
  Iterator begin() { return Iterator(*this); }
  Iterator end() { return {}; }

 private:
  Set dataset_;
  Sampler sampler_;
  mica::data::DataLoaderOptions options_;
};

template <class Sampler = samplers::RandomSampler, class Set>
std::unique_ptr<DataLoader<Set, Sampler>> make_data_loader(Set dataset, Sampler sampler,
                                                           const DataLoaderOptions& options = {}) {
  return std::make_unique<DataLoader<Set, Sampler>>(std::move(dataset), std::move(sampler), options);
}
template <class Sampler = samplers::RandomSampler, class Set>
std::unique_ptr<DataLoader<Set, Sampler>> make_data_loader(Set dataset, const DataLoaderOptions& options = {}) {
  const std::optional<size_t> size = dataset.size();
  TORCH_CHECK(size, "Expected the dataset to be sized in order to construct the Sampler");
  return make_data_loader(std::move(dataset), Sampler(static_cast<int64_t>(*size)), options);
}

}  // namespace torch::data
