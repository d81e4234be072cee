#include "compiler/interleaved_memory.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "compiler/unfinished.h"
#include "mica/allocator.h"

namespace mica::recording {

const Interleaving* InterleavedMemory::find(const StorageImpl* storage) const {
  for (const Entry& each : all_)
    if (each.storage.get() == storage) return &each.how;
  return nullptr;
}

void InterleavedMemory::add(const Storage& storage, const Interleaving& how) {
  storage->set_written_later(true);
  all_.push_back({storage, how});
  any_.store(true, std::memory_order_relaxed);
}

void InterleavedMemory::separate(const StorageImpl* storage) {
  const auto entry =
      std::find_if(all_.begin(), all_.end(), [&](const Entry& each) { return each.storage.get() == storage; });
  if (entry == all_.end()) return;
  const size_t bytes = storage->nbytes();
  const auto give_back = [bytes](void* memory) { cpu_free(memory, bytes); };
  const std::unique_ptr<void, decltype(give_back)> copy(cpu_allocate(bytes), give_back);
  std::memcpy(copy.get(), storage->address(), bytes);
  separate_channels(static_cast<const float*>(copy.get()), static_cast<float*>(storage->address()), entry->how);
  entry->storage->set_written_later(false);
  all_.erase(entry);
  any_.store(!all_.empty(), std::memory_order_relaxed);
}

void InterleavedMemory::separate_all() {
  drop_unused();
  while (!all_.empty()) separate(all_.back().storage.get());
}

void InterleavedMemory::drop_unused() {
  std::erase_if(all_, [](const Entry& each) { return each.storage->use_count() == 1; });
  any_.store(!all_.empty(), std::memory_order_relaxed);
}

void InterleavedMemory::lose_all(const std::string& reason) {
  for (const Entry& each : all_) lose(each.storage, reason);
  all_.clear();
  any_.store(false, std::memory_order_relaxed);
}

}  // namespace mica::recording
