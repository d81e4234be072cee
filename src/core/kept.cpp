#include "core/kept.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/compiler_switch.h"
#include "core/reach.h"
#include "mica/allocator.h"
#include "mica/core/fork.h"
#include "mica/core/recording.h"

namespace mica::kept {

namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // the most bytes that are kept in all
constexpr size_t kLine = 64, kLines = 16;
constexpr size_t kLeastBytes = 1 << 12;  // fewer bytes are not worth being kept

std::mutex mutex;
HeldOverFork held(mutex, LockOrder::Storages);

std::unordered_map<const StorageImpl*, std::shared_ptr<Weight>>& weights() {
  // Never destroyed, so that it outlives every storage.
  static auto* all = new std::unordered_map<const StorageImpl*, std::shared_ptr<Weight>>;
  return *all;
}
std::atomic<size_t> count{0}, kept_bytes{0};

bool is_on() {
  static const bool on = recording::is_switched_on("MICA_COMPILER_KEEP");
  return on;
}

thread_local std::shared_ptr<Weight>* current = nullptr;  // the weight of the innermost scope

// Some lines of the weight's memory. The storage does not notice a write through an address that was asked for long
// before; if the whole weight was written, these lines tell.
struct Sample {
  char bytes[kLines * kLine];
  size_t lines, step;
  explicit Sample(const StorageImpl& storage) {
    const size_t all = storage.nbytes() / kLine;
    lines = std::min(all, kLines);
    step = std::max<size_t>(1, all / kLines) * kLine;
    for (size_t i = 0; i < lines; ++i) std::memcpy(bytes + i * kLine, line(storage, i), kLine);
  }
  // Of a storage of the same size.
  bool is_of(const StorageImpl& storage) const {
    // All lines are asked for before the first one is waited for.
    for (size_t i = 0; i < lines; ++i) __builtin_prefetch(line(storage, i));
    for (size_t i = 0; i < lines; ++i)
      if (std::memcmp(bytes + i * kLine, line(storage, i), kLine) != 0) return false;
    return true;
  }
  const char* line(const StorageImpl& storage, size_t i) const {
    return static_cast<const char*>(storage.address()) + i * step;
  }
};

}  // namespace

struct Weight {
  struct Thing {
    Key key;
    std::shared_ptr<void> data;
    size_t bytes;
  };
  const char* begin;
  size_t nbytes;
  uint32_t version;
  Sample sample;
  std::vector<Thing> things;

  explicit Weight(const StorageImpl& s)
      : begin(static_cast<const char*>(s.address())), nbytes(s.nbytes()), version(s.version()), sample(s) {}
  ~Weight() {
    for (const Thing& t : things) kept_bytes.fetch_sub(t.bytes, std::memory_order_relaxed);
  }
  const Thing* find(const Key& key) const {
    for (const Thing& t : things)
      if (t.key == key) return &t;
    return nullptr;
  }
  bool is_of(const StorageImpl& s) const {
    return begin == s.address() && nbytes == s.nbytes() && version == s.version() && sample.is_of(s);
  }
};

// Whether the memory at `data` belongs to the weight of the innermost scope.
static bool keeps(const void* data) {
  if (!current) return false;
  const Weight& w = **current;
  const auto* at = static_cast<const char*>(data);
  return at >= w.begin && at < w.begin + w.nbytes;
}

Scope::Scope(const Tensor& weight) : before_(current) {
  if (recording::in_function() && weight.is_cpu()) open(weight.impl()->storage.get());
  current = weight_ ? &weight_ : nullptr;
}

Scope::Scope(StorageImpl* weight) : before_(current) {
  open(weight);
  current = weight_ ? &weight_ : nullptr;
}

void Scope::open(StorageImpl* storage) {
  if (!is_on() || !storage || !storage->resizable() || storage->deleter() || !storage->address() ||
      storage->nbytes() < kLeastBytes || storage->written_later())
    return;
  bool changed = false;
  {
    const std::lock_guard lock(mutex);
    const auto found = weights().find(storage);
    if (found != weights().end() && found->second->is_of(*storage)) {
      weight_ = found->second;
    } else if (found != weights().end()) {
      changed = true;
    } else {
      weights().emplace(storage, std::make_shared<Weight>(*storage));
      count.fetch_add(1, std::memory_order_relaxed);
      storage->hold();
    }
  }
  if (changed) forget(*storage);
}

Scope::~Scope() { current = before_; }

const TensorView& view_to_read(const Tensor& t) {
  const StorageImpl* storage = t.impl()->storage.get();
  if (!storage || !storage->moved() || !storage->address() || storage->written_later()) return t.view_of();
  check_reach(*t.impl());
  t.impl()->refresh_data_pointer();
  return t.impl()->view;
}

bool may_keep(const Key& key, size_t bytes) {
  if (!keeps(key.data)) return false;
  if (kept_bytes.load(std::memory_order_relaxed) + bytes <= kMostBytes) return true;
  const std::lock_guard lock(mutex);
  return (*current)->find(key) != nullptr;
}

Memory::Memory(const Key& key, size_t bytes) : key_(key), bytes_(bytes) {
  if (keeps(key.data)) {
    weight_ = *current;
    const std::lock_guard lock(mutex);
    if (const Weight::Thing* thing = weight_->find(key)) {
      shared_ = thing->data;
      data_ = shared_.get();
      filled_ = true;
      return;
    }
  }
  data_ = cpu_allocate(bytes);
}

Memory::~Memory() {
  if (!shared_) cpu_free(data_, bytes_);
}

void Memory::set_filled() {
  filled_ = true;
  if (!weight_ || shared_ || kept_bytes.load(std::memory_order_relaxed) + bytes_ > kMostBytes) return;
  shared_ = std::shared_ptr<void>(data_, [bytes = bytes_](void* p) { cpu_free(p, bytes); });
  const std::lock_guard lock(mutex);
  if (weight_->find(key_)) return;  // another thread was first
  weight_->things.push_back({key_, shared_, bytes_});
  kept_bytes.fetch_add(bytes_, std::memory_order_relaxed);
}

void forget(const StorageImpl& storage) {
  if (count.load(std::memory_order_relaxed) == 0) return;
  std::shared_ptr<Weight> gone;  // freed after the lock is released
  {
    const std::lock_guard lock(mutex);
    const auto found = weights().find(&storage);
    if (found == weights().end()) return;
    gone = std::move(found->second);
    weights().erase(found);
    count.fetch_sub(1, std::memory_order_relaxed);
    const_cast<StorageImpl&>(storage).unhold();
  }
}

size_t bytes() { return kept_bytes.load(std::memory_order_relaxed); }

}  // namespace mica::kept
