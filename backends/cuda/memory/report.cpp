// The allocator's reports: statistics, the list of segments, and why there is no memory left.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "backends/cuda/memory/device_allocator.h"
#include "backends/cuda/memory/settings.h"

namespace mica::cuda {

namespace {

std::string size_text(double bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB"};
  int unit = 0;
  while (unit < 3 && bytes >= 1024) bytes /= 1024, ++unit;
  char text[64];
  std::snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
  return text;
}
std::string size_text(int64_t bytes) { return size_text(static_cast<double>(bytes)); }

std::string json(const Count& c) {
  return cat("{\"current\":", c.current, ",\"peak\":", c.peak, ",\"allocated\":", c.added, ",\"freed\":", c.taken, "}");
}
std::string json(const Counts& c) {
  return cat("{\"all\":", json(c.of[2]), ",\"small_pool\":", json(c.of[0]), ",\"large_pool\":", json(c.of[1]), "}");
}

const char* state_name(BlockState state) {
  switch (state) {
    case BlockState::InUse:
      return "active_allocated";
    case BlockState::Waiting:
      return "active_pending_free";
    default:
      return "inactive";
  }
}

}  // namespace

MemoryStats DeviceAllocator::stats() {
  std::lock_guard lock(mutex_);
  MemoryStats s;
  s.allocated = allocated_.of[2].current;
  s.peak_allocated = allocated_.of[2].peak;
  s.reserved = reserved_.of[2].current;
  s.peak_reserved = reserved_.of[2].peak;
  s.allocations = allocations_.of[2].added;
  s.device_allocations = device_allocations_;
  size_t free_bytes = 0, total_bytes = 0;
  MICA_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  s.free_memory = static_cast<int64_t>(free_bytes);
  s.total_memory = static_cast<int64_t>(total_bytes);
  return s;
}

void DeviceAllocator::reset_peaks() {
  std::lock_guard lock(mutex_);
  for (Counts* counts :
       {&allocations_, &allocated_, &requested_, &active_blocks_, &active_, &reserved_, &segment_count_})
    for (Count& c : counts->of) c.peak = c.current;
  idle_.peak = 0;
}

void DeviceAllocator::reset_accumulated() {
  std::lock_guard lock(mutex_);
  for (Counts* counts :
       {&allocations_, &allocated_, &requested_, &active_blocks_, &active_, &reserved_, &segment_count_})
    for (Count& c : counts->of) c.added = c.taken = 0;
  retries_ = failures_ = device_allocations_ = device_frees_ = 0;
}

std::string DeviceAllocator::statistics() {
  std::lock_guard lock(mutex_);
  Counts idle, idle_bytes;
  for (const auto& segment : segments_) {
    if (!segment->first || (segment->first->state == BlockState::Free && !segment->first->after)) continue;
    for (const Block* b = segment->first; b; b = b->after)
      if (b->state == BlockState::Free || b->state == BlockState::Quick) {
        idle.add(segment->small, 1);
        idle_bytes.add(segment->small, static_cast<int64_t>(b->size));
      }
  }
  idle_.peak = std::max(idle_.peak, idle_bytes.of[2].current);
  idle_bytes.of[2].peak = idle_.peak;
  const auto split = allocator_settings().max_split_size.load();
  return cat("{\"allocation\":", json(allocations_), ",\"segment\":", json(segment_count_),
             ",\"active\":", json(active_blocks_), ",\"inactive_split\":", json(idle),
             ",\"allocated_bytes\":", json(allocated_), ",\"reserved_bytes\":", json(reserved_),
             ",\"active_bytes\":", json(active_), ",\"inactive_split_bytes\":", json(idle_bytes),
             ",\"requested_bytes\":", json(requested_),
             ",\"max_split_size\":", split == SIZE_MAX ? int64_t{-1} : static_cast<int64_t>(split),
             ",\"num_alloc_retries\":", retries_, ",\"num_ooms\":", failures_, ",\"num_sync_all_streams\":", retries_,
             ",\"num_device_alloc\":", device_allocations_, ",\"num_device_free\":", device_frees_, "}");
}

std::string DeviceAllocator::snapshot() {
  std::lock_guard lock(mutex_);
  std::string all = "[";
  for (const auto& segment : segments_) {
    // A segment with holes is several pieces of memory.
    for (const Block* b = segment->first; b;) {
      if (b->state == BlockState::Hole) {
        b = b->after;
        continue;
      }
      const char* begin = b->data;
      int64_t total = 0, allocated = 0, active = 0, requested = 0;
      std::string blocks;
      for (; b && b->state != BlockState::Hole; b = b->after) {
        const auto size = static_cast<int64_t>(b->size);
        const bool in_use = b->state == BlockState::InUse, waits = b->state == BlockState::Waiting;
        total += size;
        if (in_use) allocated += size, requested += static_cast<int64_t>(b->requested);
        if (in_use || waits) active += size;
        if (!blocks.empty()) blocks += ',';
        blocks += cat("{\"address\":", reinterpret_cast<uintptr_t>(b->data), ",\"size\":", size,
                      ",\"requested_size\":", in_use || waits ? b->requested : size_t{0}, ",\"state\":\"",
                      state_name(b->state), "\",\"frames\":[]}");
      }
      if (all.size() > 1) all += ',';
      all +=
          cat("{\"device\":", index_, ",\"address\":", reinterpret_cast<uintptr_t>(begin), ",\"total_size\":", total,
              ",\"allocated_size\":", allocated, ",\"active_size\":", active, ",\"requested_size\":", requested,
              ",\"stream\":", segment->of_graph ? 0 : reinterpret_cast<uintptr_t>(segment->owner),
              ",\"segment_type\":\"", segment->small ? "small" : "large", "\",\"segment_pool_id\":[0,",
              segment->of_graph ? reinterpret_cast<uintptr_t>(segment->owner) : 0,
              "],\"is_expandable\":", segment->range ? "true" : "false", ",\"frames\":[],\"blocks\":[", blocks, "]}");
    }
  }
  return all + "]";
}

// Names who holds the memory: tensors by the size of their blocks, graphs, and blocks that wait for other streams.
void DeviceAllocator::fail_full(size_t wanted) {
  cudaGetLastError();
  ++failures_;
  size_t free_bytes = 0, total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  std::map<size_t, int64_t> held;  // how many tensors hold a block of a size
  int64_t of_graphs = 0, waiting = 0;
  for (const auto& segment : segments_)
    for (const Block* b = segment->first; b; b = b->after) {
      if (b->state == BlockState::InUse) ++held[b->size];
      if (b->state == BlockState::Waiting) waiting += static_cast<int64_t>(b->size);
      if (segment->of_graph && b->state != BlockState::Hole) of_graphs += static_cast<int64_t>(b->size);
    }
  std::vector<std::pair<size_t, int64_t>> largest(held.begin(), held.end());
  std::sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) {
    return static_cast<int64_t>(a.first) * a.second > static_cast<int64_t>(b.first) * b.second;
  });
  std::string holders;
  for (size_t i = 0; i < largest.size() && i < 5; ++i)
    holders += cat(i ? ", " : " Held by tensors: ", largest[i].second, " of ",
                   size_text(static_cast<int64_t>(largest[i].first)));
  if (largest.size() > 5) holders += cat(", and ", largest.size() - 5, " other sizes");
  if (!holders.empty()) holders += '.';
  if (of_graphs) holders += cat(" Graphs keep ", size_text(of_graphs), " for their replays.");
  if (waiting) holders += cat(" ", size_text(waiting), " waits for other streams.");
  const int64_t allocated = allocated_.of[2].current, reserved = reserved_.of[2].current;
  const std::string limit = limit_ ? cat(" ", size_text(limit_), " allowed;") : std::string();
  fail(ErrorKind::OutOfMemory,
       cat("CUDA out of memory. Tried to allocate ", size_text(static_cast<int64_t>(wanted)), ". GPU ", index_,
           " has a total capacity of ", size_text(static_cast<int64_t>(total_bytes)), " of which ",
           size_text(static_cast<int64_t>(free_bytes)), " is free.", limit, " Of the allocated memory ",
           size_text(allocated), " is allocated by tensors, and ", size_text(reserved - allocated),
           " is reserved but unallocated, and stayed so after the unused segments were given back.", holders,
           allocator_settings().expandable_segments.load() || reserved - allocated < allocated / 8
               ? ""
               : " If reserved but unallocated memory is large try setting "
                 "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."));
}

}  // namespace mica::cuda
