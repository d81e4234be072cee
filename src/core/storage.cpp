#include "mica/core/storage.h"

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/observe.h"
#include "mica/allocator.h"
#include "mica/backend.h"
#include "mica/core/recording.h"
#include "mica/error.h"
#include "mica/core/fork.h"

namespace mica {

namespace {

void* allocate_on(size_t nbytes, Device device) try {
  if (nbytes == 0 || device.is_meta()) return nullptr;
  if (device.is_cpu()) return cpu_allocate(nbytes);
  return backend(device.type()).allocate(nbytes, device.index());
} catch (const Error& e) {
  if (e.kind() != ErrorKind::OutOfMemory) throw;
  fail(ErrorKind::OutOfMemory, e.what() + inspect::who_holds_memory(device, static_cast<int64_t>(nbytes)));
}

void free_on(void* data, size_t nbytes, Device device) {
  if (!data || device.is_meta()) return;
  if (device.is_cpu()) {
    cpu_free(data, nbytes);
  } else {
    backend(device.type()).free(data, nbytes, device.index());
  }
}

}  // namespace

namespace {

// Up to this size the data shares the header's block: one allocation instead of two.
constexpr size_t kInlineBytes = 512;
constexpr size_t kHeaderBytes = (sizeof(StorageImpl) + kCpuAlignment - 1) / kCpuAlignment * kCpuAlignment;

}  // namespace

Storage StorageImpl::allocate(size_t nbytes, Device device) {
  if (device.is_cpu() && nbytes > 0 && nbytes <= kInlineBytes) [[likely]] {
    void* block = cpu_allocate(kHeaderBytes + nbytes);
    auto* s = new (block) StorageImpl;
    s->data_ = static_cast<char*>(block) + kHeaderBytes;
    s->nbytes_ = nbytes;
    s->inline_bytes_ = static_cast<uint32_t>(nbytes);
    s->device_ = device;
    if (inspect::wants_allocation(nbytes)) [[unlikely]]
      inspect::note_allocation(s, s->data_, nbytes, device);
    return Storage::adopt(s);
  }
  void* data = allocate_on(nbytes, device);
  auto* s = new (cpu_allocate(sizeof(StorageImpl))) StorageImpl;
  s->data_ = data;
  s->nbytes_ = nbytes;
  s->device_ = device;
  if (inspect::wants_allocation(nbytes)) [[unlikely]]
    inspect::note_allocation(s, data, nbytes, device);
  return Storage::adopt(s);
}

Storage StorageImpl::wrap(void* data, size_t nbytes, Device device, Deleter deleter, void* context) {
  auto* s = new (cpu_allocate(sizeof(StorageImpl))) StorageImpl;
  s->data_ = data;
  s->nbytes_ = nbytes;
  s->device_ = device;
  s->deleter_ = deleter;
  s->context_ = context;
  s->resizable_ = false;
  return Storage::adopt(s);
}

Storage StorageImpl::promise(size_t nbytes, Device device) {
  auto* s = new (cpu_allocate(sizeof(StorageImpl))) StorageImpl;
  s->nbytes_ = nbytes;
  s->device_ = device;
  // Tensors made now have no address to keep, and whoever asks for one lets the memory be allocated.
  s->watch_.store(kMoved + kHolder, std::memory_order_relaxed);
  return Storage::adopt(s);
}

void StorageImpl::keep_promise() {
  if (data_ || nbytes_ == 0) return;
  data_ = allocate_on(nbytes_, device_);
  unhold();
  if (inspect::wants_allocation(nbytes_)) [[unlikely]]
    inspect::note_allocation(this, data_, nbytes_, device_);
}

void StorageImpl::settle() const {
  recording::settle(*this);
  const_cast<StorageImpl*>(this)->keep_promise();
}

void StorageImpl::resize(size_t nbytes) {
  data();
  MICA_CHECK(resizable_, "Trying to resize storage that is not resizable: its memory belongs to another library");
  const auto note = [this, before = nbytes_] {
    if (inspect::knows_blocks() || inspect::wants_allocation(before)) inspect::note_free(this, before, device_);
    if (inspect::wants_allocation(nbytes_)) inspect::note_allocation(this, data_, nbytes_, device_);
  };
  if (device_.is_meta()) {
    nbytes_ = nbytes;
    note();
    return;
  }
  void* bigger = allocate_on(nbytes, device_);
  const size_t common = nbytes < nbytes_ ? nbytes : nbytes_;
  if (common) {
    if (device_.is_cpu()) {
      std::memcpy(bigger, data_, common);
    } else {
      backend(device_.type()).copy_bytes(bigger, device_, data_, device_, common, false);
    }
  }
  if (data_ != inline_data()) free_on(data_, nbytes_, device_);
  data_ = bigger;
  nbytes_ = nbytes;
  watch_.fetch_or(kMoved, std::memory_order_relaxed);
  note();
}

void* StorageImpl::inline_data() const {
  return inline_bytes_ ? reinterpret_cast<char*>(const_cast<StorageImpl*>(this)) + kHeaderBytes : nullptr;
}

namespace {

// Memory that storages have moved away from while others may still look at it. It is let go of with its storage.
struct LeftBehind {
  void* data;
  size_t nbytes;
  StorageImpl::Deleter deleter;
  void* context;
};
std::mutex left_behind_mutex;
HeldOverFork left_behind_held(left_behind_mutex, LockOrder::Storages);
std::unordered_multimap<const StorageImpl*, LeftBehind>& left_behind() {
  static auto* memory = new std::unordered_multimap<const StorageImpl*, LeftBehind>;  // outlives every storage
  return *memory;
}

}  // namespace

void StorageImpl::move_to(void* data, Deleter deleter, void* context) {
  this->data();
  if (data != data_) {
    if (nbytes_) std::memcpy(data, data_, nbytes_);
    if (resizable_) {
      if (inspect::wants_allocation(nbytes_)) inspect::count_free(nbytes_, device_);
      let_go();
    } else if (data_ != inline_data()) {
      const std::lock_guard lock(left_behind_mutex);
      left_behind().emplace(this, LeftBehind{data_, nbytes_, deleter_, context_});
    }
    watch_.fetch_or(kMoved, std::memory_order_relaxed);
  }
  data_ = data;
  deleter_ = deleter;
  context_ = context;
  resizable_ = false;
}

void StorageImpl::let_go() {
  if (deleter_) {
    deleter_(context_, data_, nbytes_);
  } else if (data_ != inline_data()) {
    free_on(data_, nbytes_, device_);
  }
}

void StorageImpl::destroy() {
  if (inspect::wants_allocation(nbytes_)) [[unlikely]]
    inspect::note_free(this, deleter_ ? 0 : nbytes_, device_);
  let_go();
  if (moved() && !resizable_) {
    std::vector<LeftBehind> memory;
    {
      const std::lock_guard lock(left_behind_mutex);
      const auto [begin, end] = left_behind().equal_range(this);
      for (auto it = begin; it != end; ++it) memory.push_back(it->second);
      left_behind().erase(begin, end);
    }
    for (const LeftBehind& m : memory) {
      if (m.deleter) {
        m.deleter(m.context, m.data, m.nbytes);
      } else {
        free_on(m.data, m.nbytes, device_);
      }
    }
  }
  const size_t block = inline_bytes_ ? kHeaderBytes + inline_bytes_ : sizeof(StorageImpl);
  this->~StorageImpl();
  cpu_free(this, block);
}

}  // namespace mica
