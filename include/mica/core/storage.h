// A storage is one flat piece of memory, shared by every tensor that views it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "mica/device.h"

namespace mica {

// Gives up one of the references that `count` counts; true for the last one. Whoever holds the only reference has no
// rival, since a new one is made from an old one: then no atomic write is needed.
inline bool drop_reference(std::atomic<uint32_t>& count) {
  return count.load(std::memory_order_acquire) == 1 || count.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

// An intrusive, thread-safe reference. T has retain() and release().
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* p) : p_(p) {
    if (p_) p_->retain();
  }
  static Ref adopt(T* p) {  // takes over a reference that the caller owns
    Ref r;
    r.p_ = p;
    return r;
  }
  Ref(const Ref& o) : Ref(o.p_) {}
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_) p_->release();
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  T* leak() { return std::exchange(p_, nullptr); }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  T* p_ = nullptr;
};

class StorageImpl {
 public:
  using Deleter = void (*)(void* context, void* data, size_t nbytes);

  // Memory of the device's allocator, uninitialised.
  static Ref<StorageImpl> allocate(size_t nbytes, Device device);
  // Memory that somebody else owns; `deleter(context, data, nbytes)` runs when the last reference goes.
  static Ref<StorageImpl> wrap(void* data, size_t nbytes, Device device, Deleter deleter, void* context);
  // Memory that is allocated when its contents are computed: mica/core/recording.h.
  static Ref<StorageImpl> promise(size_t nbytes, Device device);

  void* data() const {
    if (watch_.load(std::memory_order_relaxed) > kMoved) [[unlikely]]
      settle();
    return data_;
  }
  void* address() const { return data_; }  // the address as it is now; null where memory is only promised
  size_t nbytes() const { return nbytes_; }
  Device device() const { return device_; }
  bool resizable() const { return resizable_; }
  void resize(size_t nbytes);  // keeps the bytes that both sizes have
  // Copies the contents to memory that somebody else owns, given as for wrap(). A storage that cannot be resized keeps
  // its old memory alive as well.
  void move_to(void* data, Deleter deleter, void* context);  // on the CPU
  Deleter deleter() const { return deleter_; }  // tells whose memory it is; null for memory of the device's allocator
  void* context() const { return context_; }
  // Whether a resize has ever moved the memory, or recorded calls of kernels have yet to run on it. A tensor that was
  // made before holds a stale pointer then, and refreshes it when it is asked for it.
  bool moved() const { return watch_.load(std::memory_order_relaxed) != 0; }

  // For recordings of calls: a recording holds the memory that its calls read or write. Whoever else asks for that
  // memory lets the calls run first.
  void hold() { watch_.fetch_add(kHolder, std::memory_order_relaxed); }
  void unhold() { watch_.fetch_sub(kHolder, std::memory_order_relaxed); }
  void set_written_later(bool on) {
    on ? watch_.fetch_or(kWritten, std::memory_order_relaxed) : watch_.fetch_and(~kWritten, std::memory_order_relaxed);
  }
  bool written_later() const { return watch_.load(std::memory_order_relaxed) & kWritten; }
  void keep_promise();                   // allocates promised memory; does nothing where there is memory
  void break_promise() { nbytes_ = 0; }  // to be called when nobody is left who could ask for the memory
  // Runs the recorded calls that concern this memory: all calls of this thread, and those of other threads that write
  // it.
  void settle() const;

  // Counts in-place changes of the memory; autograd compares it with the count at the time a tensor was saved.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }
  void set_version(uint32_t v) { version_.store(v, std::memory_order_relaxed); }

  uint32_t use_count() const { return refs_.load(std::memory_order_relaxed); }
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (drop_reference(refs_)) destroy();
  }

  void* python_object = nullptr;  // the UntypedStorage wrapper, borrowed; it clears this when it dies

 private:
  StorageImpl() = default;
  ~StorageImpl() = default;
  void destroy();
  void let_go();              // frees the memory
  void* inline_data() const;  // null when the block has none

  static constexpr uint32_t kMoved = 1, kWritten = 2, kHolder = 4;  // bits of watch_; the bits above them count holders

  std::atomic<uint32_t> refs_{1};
  std::atomic<uint32_t> version_{0};
  uint32_t inline_bytes_ = 0;  // small CPU memory lies behind the header, in one block with it
  std::atomic<uint32_t> watch_{0};
  void* data_ = nullptr;
  size_t nbytes_ = 0;
  Deleter deleter_ = nullptr;  // null: the device's allocator owns the memory
  void* context_ = nullptr;
  Device device_;
  bool resizable_ = true;
};
using Storage = Ref<StorageImpl>;

}  // namespace mica
