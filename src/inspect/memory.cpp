// Who holds memory: every block while a recording runs, large ones always.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <unordered_map>

#include "core/observe.h"
#include "inspect/clock.h"
#include "mica/allocator.h"
#include "mica/backend.h"
#include "mica/error.h"
#include "mica/core/fork.h"
#include "mica/inspect.h"

namespace mica::inspect {

std::atomic<bool> recording_memory{false};
std::atomic<uint32_t> watching_memory{0};
std::atomic<uint32_t> noted_blocks{0};
constinit thread_local bool places_pending = false;
constinit thread_local int64_t counted_bytes = 0;

namespace {

struct Known {
  Block block;
  uint64_t serial = 0;
};
struct Ledger {
  std::mutex mutex;
  HeldOverFork held{mutex, LockOrder::Blocks};
  std::unordered_map<const void*, Known> live;
  std::vector<Known> dead;  // blocks of the present recording that were freed
  uint64_t serials = 0;
  int64_t events = 0, started_ns = 0;
};
// Never destroyed: storages die after everything else.
Ledger& ledger() {
  static auto* one = new Ledger;
  return *one;
}
[[maybe_unused]] Ledger& made_at_load = ledger();  // a fork must not come while it is made

// Blocks of this thread whose place is not known yet, since the interpreter could not be asked.
struct Pending {
  std::vector<std::pair<const void*, uint64_t>> blocks;
  size_t dead_before = 0;
};
thread_local Pending pending;

// Whether a block is entered in the ledger; a profile that counts bytes alone needs no entry.
bool keeps_note(size_t bytes) { return bytes >= kAlwaysNoted || recording_memory.load(std::memory_order_relaxed); }

bool stronger(MemoryKind a, MemoryKind b) { return static_cast<int>(a) < static_cast<int>(b); }

}  // namespace

const char* name(MemoryKind kind) {
  static constexpr const char* kNames[] = {"parameters",  "buffers",     "gradients", "optimizer state",
                                           "activations", "temporaries", "other"};
  return kNames[static_cast<int>(kind)];
}

void note_allocation(const void* storage, const void* data, size_t bytes, Device device) {
  if (bytes == 0) return;
  if (device.is_cpu()) counted_bytes += static_cast<int64_t>(bytes);
  if (!keeps_note(bytes)) return;
  Known known;
  Block& b = known.block;
  b.address = reinterpret_cast<uint64_t>(data);
  b.bytes = static_cast<int64_t>(bytes);
  b.device = device;
  b.operation = outermost_operation();
  b.in_backward = inside_backward();
  if (b.in_backward) b.operation = "";  // the name belongs to the node, which may die before
  b.born_ns = nanoseconds_now();
  const uint32_t place = current_place ? current_place() : 0;
  Ledger& l = ledger();
  std::lock_guard lock(l.mutex);
  known.serial = ++l.serials;
  b.born = l.events++;
  if (place == kPlaceLater) {
    if (pending.blocks.empty()) pending.dead_before = l.dead.size();
    pending.blocks.emplace_back(storage, known.serial);
    places_pending = true;
  } else {
    b.place = place;
  }
  l.live[storage] = known;
  noted_blocks.store(static_cast<uint32_t>(l.live.size()), std::memory_order_relaxed);
}

void note_free(const void* storage, size_t bytes, Device device) {
  count_free(bytes, device);
  Ledger& l = ledger();
  std::lock_guard lock(l.mutex);
  const auto found = l.live.find(storage);
  if (found == l.live.end()) return;
  if (recording_memory.load(std::memory_order_relaxed)) {
    found->second.block.died = l.events++;
    found->second.block.died_ns = nanoseconds_now();
    l.dead.push_back(found->second);
  }
  l.live.erase(found);
  noted_blocks.store(static_cast<uint32_t>(l.live.size()), std::memory_order_relaxed);
}

void settle_places(uint32_t place) {
  settle_operations(place);
  Ledger& l = ledger();
  std::lock_guard lock(l.mutex);
  for (const auto& [storage, serial] : pending.blocks) {
    if (const auto found = l.live.find(storage); found != l.live.end() && found->second.serial == serial) {
      found->second.block.place = place;
      continue;
    }
    for (size_t i = std::min(pending.dead_before, l.dead.size()); i < l.dead.size(); ++i)
      if (l.dead[i].serial == serial) l.dead[i].block.place = place;
  }
  pending.blocks.clear();
  places_pending = false;
}

// ---- recordings

void start_memory() {
  Ledger& l = ledger();
  {
    std::lock_guard lock(l.mutex);
    MICA_CHECK(!recording_memory.load(), "memory is being recorded already: recordings do not nest");
    l.dead.clear();
    l.events = 0;
    l.started_ns = nanoseconds_now();
    for (auto& [storage, known] : l.live) {
      known.block.before = true;
      known.block.born = 0;
    }
    recording_memory = true;
    ++watching_memory;
  }
  announce_operations(1);
}

MemoryRecord memory_so_far() {
  Ledger& l = ledger();
  std::lock_guard lock(l.mutex);
  MemoryRecord record;
  record.events = l.events;
  record.started_ns = l.started_ns;
  record.ended_ns = nanoseconds_now();
  record.blocks.reserve(l.dead.size() + l.live.size());
  for (const Known& k : l.dead) record.blocks.push_back(k.block);
  for (const auto& [storage, known] : l.live) record.blocks.push_back(known.block);
  for (Block& b : record.blocks)
    if (b.kind == MemoryKind::Other && b.died >= 0 && !b.before) b.kind = MemoryKind::Temporary;
  std::sort(record.blocks.begin(), record.blocks.end(), [](const Block& a, const Block& b) { return a.born < b.born; });
  return record;
}

MemoryRecord next_memory() {
  MemoryRecord record = memory_so_far();
  Ledger& l = ledger();
  std::lock_guard lock(l.mutex);
  l.dead.clear();
  l.events = 0;
  l.started_ns = record.ended_ns;
  for (auto& [storage, known] : l.live) {
    known.block.before = true;
    known.block.born = 0;
  }
  return record;
}

MemoryRecord stop_memory() {
  MICA_CHECK(recording_memory.load(), "memory is not being recorded");
  MemoryRecord record = memory_so_far();
  Ledger& l = ledger();
  {
    std::lock_guard lock(l.mutex);
    recording_memory = false;
    --watching_memory;
    l.dead.clear();
    // Small blocks are forgotten: nobody looks for them when they are freed.
    std::erase_if(l.live,
                  [](const auto& entry) { return static_cast<size_t>(entry.second.block.bytes) < kAlwaysNoted; });
    noted_blocks.store(static_cast<uint32_t>(l.live.size()), std::memory_order_relaxed);
  }
  announce_operations(-1);
  return record;
}

bool memory_recording() { return recording_memory.load(std::memory_order_relaxed); }

void mark_memory(const Tensor& t, MemoryKind kind) {
  if (!t.defined() || !t.storage()) return;
  const StorageImpl* storage = t.storage().get();
  if (storage->nbytes() == 0) return;
  Ledger& l = ledger();
  std::lock_guard lock(l.mutex);
  const auto found = l.live.find(storage);
  if (found != l.live.end()) {
    if (stronger(kind, found->second.block.kind)) found->second.block.kind = kind;
    return;
  }
  if (!recording_memory.load(std::memory_order_relaxed)) return;
  Known known;
  known.serial = ++l.serials;
  known.block.address = reinterpret_cast<uint64_t>(storage->data());
  known.block.bytes = static_cast<int64_t>(storage->nbytes());
  known.block.device = storage->device();
  known.block.kind = kind;
  known.block.before = true;
  known.block.born_ns = l.started_ns;
  l.live[storage] = known;
  noted_blocks.store(static_cast<uint32_t>(l.live.size()), std::memory_order_relaxed);
}

// ---- out of memory

std::string who_holds_memory(Device device, int64_t wanted) {
  struct Line {
    int64_t bytes = 0, tensors = 0;
    MemoryKind kind = MemoryKind::Other;
  };
  std::map<std::pair<std::string, int32_t>, Line> lines;
  int64_t known = 0, activations = 0, gradients = 0;
  {
    Ledger& l = ledger();
    std::lock_guard lock(l.mutex);
    for (const auto& [storage, entry] : l.live) {
      const Block& b = entry.block;
      if (b.device != device) continue;
      const Place p = place(b.place);
      Line& line = lines[{p.file, p.line}];
      line.bytes += b.bytes;
      ++line.tensors;
      line.kind = b.kind;
      known += b.bytes;
      activations += b.kind == MemoryKind::Activation ? b.bytes : 0;
      gradients += b.kind == MemoryKind::Gradient ? b.bytes : 0;
    }
  }
  if (lines.empty()) return "";
  std::vector<std::pair<std::pair<std::string, int32_t>, Line>> order(lines.begin(), lines.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text = "\nThe lines that hold most:";
  for (size_t i = 0; i < order.size() && i < 5; ++i) {
    const auto& [where, line] = order[i];
    text +=
        cat("\n  ", readable_bytes(line.bytes), " in ", line.tensors, line.tensors == 1 ? " tensor" : " tensors", ", ",
            where.first.empty() ? std::string("made outside the program's own lines")
                                : cat(where.first, ":", where.second));
    if (line.kind != MemoryKind::Other) text += cat(" (", name(line.kind), ")");
  }
  const auto& [where, most] = order.front();
  if (most.bytes >= wanted) {
    text += cat("\nDropping what the first line holds (del, or leaving its scope) makes room.");
  } else if (known >= wanted) {
    int64_t sum = 0;
    size_t n = 0;
    while (n < order.size() && sum < wanted) sum += order[n++].second.bytes;
    text += cat("\nDropping what the first ", n, " lines hold makes room.");
  } else {
    text += cat("\nAll of it together is less than the ", readable_bytes(wanted),
                " asked for: use a smaller shape, batch or dtype.");
  }
  if (activations) text += " Activations go with a smaller batch, no_grad() or checkpointing.";
  if (gradients) text += " Gradients go with optimizer.zero_grad().";
  return text;
}

}  // namespace mica::inspect
