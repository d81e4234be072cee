#include "mica/core/storage.h"

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/absent_memory.h"
#include "core/copy_on_write.h"
#include "core/kept.h"
#include "core/observe.h"
#include "core/storage_object.h"
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
  // Tensors that are made now get no address to keep, and whoever asks for the memory has it allocated.
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

// ---- memory that stands for elements that are somewhere else

namespace {
void let_go_of_nothing(void*, void*, size_t) {}
}  // namespace

Storage absent_memory(size_t nbytes, Device device) {
  Storage absent = StorageImpl::wrap(nullptr, nbytes, device, let_go_of_nothing, nullptr);
  absent->hold();                   // whoever asks for it comes to settle(),
  absent->set_written_later(true);  // a kernel that only reads too
  return absent;
}

Scalar (*absent_item)(const Tensor&) = nullptr;

bool is_absent(const StorageImpl& storage) { return storage.deleter() == let_go_of_nothing; }

// ---- memory that storages share until one of them is written

namespace {

struct SharedMemory {
  void* data;
  size_t nbytes;
  Device device;
  int holders;
  // The storage whose block holds the memory, if one does; the memory keeps a reference to it.
  StorageImpl* origin = nullptr;
};
std::mutex sharing_mutex;
HeldOverFork sharing_held(sharing_mutex, LockOrder::Storages);

void copy_on(void* to, const void* from, size_t nbytes, Device device) {
  if (nbytes == 0) return;
  if (device.is_cpu()) {
    std::memcpy(to, from, nbytes);
  } else {
    backend(device.type()).copy_bytes(to, device, from, device, nbytes, false);
  }
}

// One holder fewer; called under sharing_mutex. Returns a storage that the caller has to settle: the owner of the
// block, if it and the memory are left with nobody else and keep each other alive.
Storage left_alone(SharedMemory& shared);

void stop_sharing(void* context, void*, size_t) {
  auto* shared = static_cast<SharedMemory*>(context);
  Storage last;
  {
    const std::lock_guard lock(sharing_mutex);
    if (--shared->holders > 0) {
      last = left_alone(*shared);
      shared = nullptr;
    }
  }
  if (last) last->settle();
  if (!shared) return;
  if (shared->origin) {
    shared->origin->release();
  } else {
    if (inspect::wants_allocation(shared->nbytes)) inspect::count_free(shared->nbytes, shared->device);
    free_on(shared->data, shared->nbytes, shared->device);
  }
  delete shared;
}

Storage left_alone(SharedMemory& shared) {
  const bool alone = shared.holders == 1 && shared.origin && shared.origin->deleter() == stop_sharing &&
                     shared.origin->context() == &shared;
  return alone ? Storage(shared.origin) : nullptr;
}

void release_origin(void* origin, void*, size_t) { static_cast<StorageImpl*>(origin)->release(); }

}  // namespace

bool copy_on_write::shares(const StorageImpl& storage) { return storage.deleter() == stop_sharing; }

Storage copy_on_write::share(const Storage& storage) {
  if (!shares(*storage)) {
    void* data = storage->data();
    if (!storage->resizable() || storage->deleter() || !data) {
      Storage copy = StorageImpl::allocate(storage->nbytes(), storage->device());
      if (data) copy_on(copy->data(), data, storage->nbytes(), storage->device());
      return copy;
    }
  }
  const std::lock_guard lock(sharing_mutex);
  if (!shares(*storage)) {
    auto* shared = new SharedMemory{storage->address(), storage->nbytes(), storage->device(), 1};
    storage->move_to(storage->address(), stop_sharing, shared);
    storage->hold();
  }
  auto* shared = static_cast<SharedMemory*>(storage->context());
  ++shared->holders;
  Storage second = StorageImpl::wrap(shared->data, shared->nbytes, shared->device, stop_sharing, shared);
  second->hold();
  return second;
}

void StorageImpl::settle() const {
  MICA_CHECK_KIND(
      !is_absent(*this), NotImplemented,
      "the elements of a tensor whose class has a __torch_dispatch__ are asked for: it has none of its own. "
      "The class was not asked for the operator that reads or writes them");
  recording::settle(*this);
  kept::forget(*this);
  auto* self = const_cast<StorageImpl*>(this);
  self->keep_promise();
  if (deleter_ != stop_sharing) return;
  void* own = nullptr;
  Storage last;
  StorageImpl* origin = nullptr;  // a reference to release after the lock
  for (;;) {
    {
      const std::lock_guard lock(sharing_mutex);
      if (deleter_ != stop_sharing) break;  // another thread was first
      auto* shared = static_cast<SharedMemory*>(context_);
      if (shared->holders == 1) {
        const bool elsewhere = shared->origin && shared->origin != this;  // the memory lies in another storage's block
        if (!elsewhere) origin = shared->origin;
        self->deleter_ = elsewhere ? release_origin : nullptr;
        self->context_ = elsewhere ? shared->origin : nullptr;
        delete shared;
      } else if (own) {
        --shared->holders;
        last = left_alone(*shared);
        self->data_ = std::exchange(own, nullptr);
        self->deleter_ = nullptr;
        self->context_ = nullptr;
        self->watch_.fetch_or(kMoved, std::memory_order_relaxed);
      }
      if (deleter_ != stop_sharing) {
        self->resizable_ = true;
        self->unhold();
        break;
      }
    }
    // Nobody writes shared memory, so it is copied without the lock. An allocation must not wait for that lock.
    own = allocate_on(nbytes_, device_);
    copy_on(own, address(), nbytes_, device_);
  }
  if (own) free_on(own, nbytes_, device_);
  if (last) last->settle();
  if (origin) origin->release();
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
  copy_on(bigger, data_, common, device_);
  let_go();
  data_ = bigger;
  deleter_ = nullptr;
  context_ = nullptr;
  nbytes_ = nbytes;
  watch_.fetch_or(kMoved, std::memory_order_relaxed);
  note();
}

void* StorageImpl::inline_data() const {
  return inline_bytes_ ? reinterpret_cast<char*>(const_cast<StorageImpl*>(this)) + kHeaderBytes : nullptr;
}

namespace {

// Memory that a storage has moved away from while others may still use it. It is freed with its storage.
struct LeftBehind {
  void* data;
  size_t nbytes;
  StorageImpl::Deleter deleter;
  void* context;
};
std::mutex left_behind_mutex;
HeldOverFork left_behind_held(left_behind_mutex, LockOrder::Storages);
std::unordered_multimap<const StorageImpl*, LeftBehind>& left_behind() {
  // Never destroyed, so that it outlives every storage.
  static auto* memory = new std::unordered_multimap<const StorageImpl*, LeftBehind>;
  return *memory;
}

}  // namespace

void StorageImpl::move_to(void* data, Deleter deleter, void* context) {
  this->data();
  if (deleter == stop_sharing && data_ == inline_data()) {
    static_cast<SharedMemory*>(context)->origin = this;
    retain();
  }
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

void (*release_storage_object)(StorageImpl*) = nullptr;

void StorageImpl::destroy() {
  if (python_object && release_storage_object) {
    refs_.store(1, std::memory_order_relaxed);
    return release_storage_object(this);
  }
  if (watch_.load(std::memory_order_relaxed) > kMoved && data_) [[unlikely]]
    kept::forget(*this);
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
