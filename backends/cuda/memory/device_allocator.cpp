// Taking and giving back blocks.
#include "backends/cuda/memory/device_allocator.h"

#include <algorithm>

#include "backends/cuda/memory/settings.h"
#include "backends/cuda/memory/sizes.h"

namespace mica::cuda {

bool DeviceAllocator::BySize::operator()(const Block* a, const Block* b) const {
  if (a->segment->owner != b->segment->owner) return a->segment->owner < b->segment->owner;
  if (a->size != b->size) return a->size < b->size;
  return a->data < b->data;
}

DeviceAllocator::QuickList& DeviceAllocator::quick_list(size_t wanted, const void* owner) {
  const size_t mixed = (wanted / kUnit ^ reinterpret_cast<uintptr_t>(owner) >> 6) * 0x9e3779b97f4a7c15u;
  return quick_[mixed >> 57];
}

void* DeviceAllocator::allocate(size_t nbytes, cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  const void* owner = stream;
  if (captures_.empty()) [[likely]] {
    if (!pending_.empty()) collect(false);
  } else if (const auto found = captures_.find(stream); found != captures_.end()) {
    owner = found->second;
  }
  for (size_t i = pools_in_use_.size(); i-- > 0;)
    if (pools_in_use_[i].first == std::this_thread::get_id()) {
      owner = pools_in_use_[i].second;
      break;
    }
  const size_t size = round_up(nbytes, kUnit);
  Block* block;
  QuickList& quick = quick_list(size, owner);
  if (quick.count && quick.wanted == size && quick.owner == owner) [[likely]] {
    block = quick.blocks[--quick.count];
  } else {
    block = take(size, owner);
    if (!block) block = grow(size, owner);
    split(block, size);
    block->wanted = size;
    known_.emplace(block->data, block);
  }
  block->state = BlockState::InUse;
  block->requested = nbytes;
  const bool small = block->segment->small;
  const auto bytes = static_cast<int64_t>(block->size);
  allocations_.add(small, 1);
  allocated_.add(small, bytes);
  requested_.add(small, static_cast<int64_t>(nbytes));
  active_blocks_.add(small, 1);
  active_.add(small, bytes);
  return block->data;
}

void DeviceAllocator::release(void* data) {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(data);
  if (found == known_.end() || found->second->state != BlockState::InUse) return;
  Block* block = found->second;
  const bool small = block->segment->small;
  allocations_.take(small, 1);
  allocated_.take(small, static_cast<int64_t>(block->size));
  requested_.take(small, static_cast<int64_t>(block->requested));
  if (!block->other_streams.empty()) {
    DeviceGuard guard(index_);
    block->state = BlockState::Waiting;
    Pending pending{block, {}};
    for (cudaStream_t stream : block->other_streams) {
      cudaEvent_t event;
      if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) continue;
      cudaEventRecord(event, stream);
      pending.events.push_back(event);
    }
    block->other_streams.clear();
    pending_.push_back(std::move(pending));
    return;
  }
  active_blocks_.take(small, 1);
  active_.take(small, static_cast<int64_t>(block->size));
  if (!allocator_settings().caching.load(std::memory_order_relaxed)) {
    known_.erase(found);
    put_back(block);
    if (captures_.empty()) trim();
    return;
  }
  if (block->wanted <= kQuickest) {
    QuickList& quick = quick_list(block->wanted, block->segment->owner);
    if (!quick.count) quick.wanted = block->wanted, quick.owner = block->segment->owner;
    if (quick.wanted == block->wanted && quick.owner == block->segment->owner &&
        quick.count < std::size(quick.blocks)) {
      block->state = BlockState::Quick;
      quick.blocks[quick.count++] = block;
      return;
    }
  }
  known_.erase(found);
  put_back(block);
}

void DeviceAllocator::use_on_stream(void* data, cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(data);
  if (found == known_.end() || found->second->state != BlockState::InUse || found->second->segment->owner == stream)
    return;
  auto& others = found->second->other_streams;
  if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
}

void DeviceAllocator::empty() {
  std::lock_guard lock(mutex_);
  collect(true);
  trim();
}

void DeviceAllocator::begin_capture(cudaStream_t stream, const void* owner) {
  std::lock_guard lock(mutex_);
  captures_[stream] = owner;
  kept_.insert(owner);
}
void DeviceAllocator::end_capture(cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  captures_.erase(stream);
}
void DeviceAllocator::forget_capture(const void* owner) {
  std::lock_guard lock(mutex_);
  kept_.erase(owner);
}
bool DeviceAllocator::was_used() {
  std::lock_guard lock(mutex_);
  return allocations_.of[2].peak > 0;
}
uintptr_t DeviceAllocator::new_pool() {
  std::lock_guard lock(mutex_);
  const void* made = new char;  // its address is its name, and stays unique as long as blocks may have it
  kept_.insert(made);
  return reinterpret_cast<uintptr_t>(made);
}
void DeviceAllocator::begin_pool(uintptr_t pool) {
  std::lock_guard lock(mutex_);
  pools_in_use_.emplace_back(std::this_thread::get_id(), reinterpret_cast<const void*>(pool));
}
void DeviceAllocator::end_pool(uintptr_t pool) {
  std::lock_guard lock(mutex_);
  for (size_t i = pools_in_use_.size(); i-- > 0;)
    if (pools_in_use_[i] == std::pair(std::this_thread::get_id(), reinterpret_cast<const void*>(pool))) {
      pools_in_use_.erase(pools_in_use_.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
}
void DeviceAllocator::free_pool(uintptr_t pool) {
  std::lock_guard lock(mutex_);
  kept_.erase(reinterpret_cast<const void*>(pool));
}
void DeviceAllocator::set_limit(int64_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

Block* DeviceAllocator::take(size_t size, const void* owner) {
  if (!allocator_settings().caching.load(std::memory_order_relaxed)) return nullptr;
  const bool small = size <= kSmall;
  auto& blocks = pool(small);
  Segment segment{owner, small, false, 0, nullptr, nullptr};
  Block wanted{nullptr, size, &segment, BlockState::Free};
  const auto found = blocks.lower_bound(&wanted);
  if (found == blocks.end() || (*found)->segment->owner != owner) return nullptr;
  Block* block = *found;
  // A large block is not spent on a request that would leave most of it idle and could not be cut.
  if (size > kLarge && !block->segment->range && block->size > size + kLargeSegment) return nullptr;
  if (block->size > allocator_settings().max_split_size.load(std::memory_order_relaxed) &&
      block->size > size + kLargeSegment)
    return nullptr;
  blocks.erase(found);
  return block;
}

// Leaves a remainder in the pool where it is large enough to be of use.
void DeviceAllocator::split(Block* block, size_t size) {
  const size_t rest = block->size - size;
  const bool small = block->segment->small;
  if (rest == 0 || rest < (small || block->segment->range ? kUnit : kSmall)) return;
  auto* remainder = new Block{block->data + size, rest, block->segment, BlockState::Free, block, block->after};
  if (block->after) block->after->before = remainder;
  block->after = remainder;
  block->size = size;
  pool(small).insert(remainder);
}

// Two neighbours become one, the first; neither is in a pool.
Block* DeviceAllocator::join(Block* first, Block* second) {
  first->size += second->size;
  first->after = second->after;
  if (second->after) second->after->before = first;
  delete second;
  return first;
}

void DeviceAllocator::put_back(Block* block) {
  auto& blocks = pool(block->segment->small);
  block->state = BlockState::Free;
  if (Block* next = block->after; next && next->state == BlockState::Free) {
    blocks.erase(next);
    join(block, next);
  }
  if (Block* previous = block->before; previous && previous->state == BlockState::Free) {
    blocks.erase(previous);
    block = join(previous, block);
  }
  blocks.insert(block);
}

// Blocks whose other streams have passed; all of them, waiting for those streams, if `wait`.
void DeviceAllocator::collect(bool wait) {
  for (size_t i = 0; i < pending_.size();) {
    Pending& p = pending_[i];
    while (!p.events.empty()) {
      if (wait) {
        cudaEventSynchronize(p.events.back());
      } else if (cudaEventQuery(p.events.back()) == cudaErrorNotReady) {
        cudaGetLastError();
        break;
      }
      cudaEventDestroy(p.events.back());
      p.events.pop_back();
    }
    if (!p.events.empty()) {
      ++i;
      continue;
    }
    const bool small = p.block->segment->small;
    active_blocks_.take(small, 1);
    active_.take(small, static_cast<int64_t>(p.block->size));
    known_.erase(p.block->data);
    put_back(p.block);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void DeviceAllocator::flush_quick() {
  for (QuickList& quick : quick_)
    while (quick.count) {
      Block* block = quick.blocks[--quick.count];
      known_.erase(block->data);
      put_back(block);
    }
}

}  // namespace mica::cuda
