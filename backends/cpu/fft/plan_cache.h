// A cache of plans: what was made for a length is kept for later calls.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "mica/core/fork.h"

namespace mica::cpu::fft {

constexpr size_t kKeptPlans = 64;                    // more plans drop the least recently used
constexpr int64_t kKeptElements = int64_t{1} << 23;  // elements of all plans of a cache together: 64 MB

// Values by key, the most recently used first, bounded in number and size.
template <class Key, class Value>
class Cache {
 public:
  template <class Make>
  std::shared_ptr<const Value> get(const Key& key, const Make& make) {
    {
      std::lock_guard lock(mutex_);
      for (auto it = kept_.begin(); it != kept_.end(); ++it)
        if (it->key == key) {
          kept_.splice(kept_.begin(), kept_, it);
          return kept_.front().value;
        }
    }
    int64_t size = 0;
    std::shared_ptr<const Value> made = make(size);  // made without the lock, because a plan may need another one
    std::lock_guard lock(mutex_);
    kept_.push_front({key, made, size});
    total_ += size;
    while (kept_.size() > 1 && (kept_.size() > kKeptPlans || total_ > kKeptElements)) {
      total_ -= kept_.back().size;
      kept_.pop_back();
    }
    return made;
  }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const Value> value;
    int64_t size;
  };
  std::mutex mutex_;
  HeldOverFork held_{mutex_, LockOrder::Plans};
  std::list<Entry> kept_;
  int64_t total_ = 0;
};

}  // namespace mica::cpu::fft
