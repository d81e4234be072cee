// An object that is made when it is first needed, and that other threads may look for meanwhile.
#pragma once

#include <atomic>

namespace mica {

// Reads like a pointer that is null until make() was called. Whoever sees the object sees it whole.
template <class T>
class MadeLate {
 public:
  MadeLate() = default;
  MadeLate(const MadeLate&) = delete;
  MadeLate& operator=(const MadeLate&) = delete;
  ~MadeLate() { delete made_.load(std::memory_order_relaxed); }

  T* get() const { return made_.load(std::memory_order_acquire); }
  explicit operator bool() const { return get() != nullptr; }
  T* operator->() const { return get(); }
  T& operator*() const { return *get(); }

  // Of threads that come at the same time one makes it.
  T& make() {
    T* found = get();
    if (found) return *found;
    T* own = new T();
    if (made_.compare_exchange_strong(found, own, std::memory_order_acq_rel)) return *own;
    delete own;
    return *found;
  }

 private:
  std::atomic<T*> made_{nullptr};
};

}  // namespace mica
