#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "data/random_seed.h"
#include "mica/data.h"

namespace mica::data {

// One pass over the dataset. Each worker takes the next indices and stores its batch under its number.
struct DataLoader::Iterator::Epoch {
  std::shared_ptr<Dataset> dataset;
  std::function<Example(const std::vector<Example>&)> collate;
  std::vector<std::vector<int64_t>> batches;  // indices
  Example current;
  size_t delivered = 0;

  struct Result {
    Example batch;
    std::exception_ptr error;
  };
  std::mutex mutex;
  std::condition_variable room, arrival;
  std::map<size_t, Result> results;  // made and not yet delivered
  size_t taken = 0;
  size_t most_ahead = 0;
  bool stopping = false;
  std::vector<std::thread> threads;

  Epoch() = default;
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;
  ~Epoch() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    room.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  Result make(size_t number) const {
    Result result;
    try {
      if (collate) {
        std::vector<Example> samples;
        for (const int64_t index : batches[number]) samples.push_back(dataset->get(index));
        result.batch = collate(samples);
      } else {
        result.batch = dataset->get_batch(batches[number]);
      }
    } catch (...) {
      result.error = std::current_exception();
    }
    return result;
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      room.wait(lock, [&] { return stopping || taken == batches.size() || taken < delivered + most_ahead; });
      if (stopping || taken == batches.size()) return;
      const size_t number = taken++;
      lock.unlock();
      Result result = make(number);
      lock.lock();
      results.emplace(number, std::move(result));
      arrival.notify_one();
    }
  }

  void next() {
    Result result;
    if (threads.empty()) {
      result = make(delivered);
    } else {
      std::unique_lock lock(mutex);
      arrival.wait(lock, [&] { return results.count(delivered) != 0; });
      result = std::move(results.at(delivered));
      results.erase(delivered);
    }
    {
      const std::lock_guard lock(mutex);
      ++delivered;
    }
    room.notify_one();
    if (result.error) std::rethrow_exception(result.error);
    current = std::move(result.batch);
  }
};

DataLoader::DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  MICA_CHECK_KIND(options_.workers >= 0, Value, "num_workers option should be non-negative");
  MICA_CHECK_KIND(options_.prefetch > 0, Value, "prefetch should be positive");
  MICA_CHECK_KIND(!options_.sampler || !options_.shuffle, Value, "sampler option is mutually exclusive with shuffle");
  if (options_.batch_sampler) {
    MICA_CHECK_KIND(options_.batch_size == 1 && !options_.shuffle && !options_.sampler && !options_.drop_last, Value,
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last");
    return;
  }
  std::shared_ptr<Sampler> sampler = options_.sampler;
  if (!sampler && options_.shuffle)
    sampler = std::make_shared<RandomSampler>(dataset_->size(), false, std::optional<int64_t>(), options_.generator);
  if (!sampler) sampler = std::make_shared<SequentialSampler>(dataset_->size());
  options_.batch_sampler = std::make_shared<BatchSampler>(std::move(sampler), options_.batch_size, options_.drop_last);
}

int64_t DataLoader::size() const { return options_.batch_sampler->size(); }

DataLoader::Iterator DataLoader::begin() {
  random_seed(options_.generator);  // Python draws a number for its workers, so this keeps the streams equal
  auto epoch = std::make_shared<Iterator::Epoch>();
  epoch->dataset = dataset_;
  epoch->collate = options_.collate;
  epoch->batches = options_.batch_sampler->batches();
  epoch->most_ahead = static_cast<size_t>(options_.workers) * static_cast<size_t>(options_.prefetch);
  for (int i = 0; i < options_.workers; ++i)
    epoch->threads.emplace_back([state = epoch.get()] { state->work(); });  // joined before the epoch dies
  Iterator iterator;
  iterator.epoch_ = std::move(epoch);
  if (iterator.epoch_->batches.empty()) {
    iterator.epoch_ = nullptr;
  } else {
    iterator.epoch_->next();
  }
  return iterator;
}

Example& DataLoader::Iterator::operator*() const { return epoch_->current; }

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  if (epoch_->delivered == epoch_->batches.size()) {
    epoch_ = nullptr;
  } else {
    epoch_->next();
  }
  return *this;
}

bool DataLoader::Iterator::operator==(const Iterator& other) const { return epoch_ == other.epoch_; }

}  // namespace mica::data
