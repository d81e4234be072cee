#include "compiler/interleaved_memory.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "compiler/unfinished.h"
#include "mica/allocator.h"
#include "mica/parallel.h"

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
  constexpr int64_t kTogether = 16, kGrain = 1 << 14;  // channels whose lines stay in the first cache
  const Interleaving& how = entry->how;
  const int64_t parts = (how.channels + kTogether - 1) / kTogether, image = how.channels * how.positions;
  parallel_for(0, how.images * parts, kGrain / (kTogether * how.positions) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t channel = i % parts * kTogether, first = i / parts * image;
      separate_channels(static_cast<const float*>(copy.get()) + first + channel, how.channels,
                        static_cast<float*>(storage->address()) + first + channel * how.positions,
                        std::min(kTogether, how.channels - channel), how.positions);
    }
  });
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
