#include "system_memory.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <string>

#include "memory_limits.h"

namespace mica::detail {
namespace {

std::atomic<int64_t> g_mapped{0};
std::atomic<int64_t> g_peak{0};

void* map_anonymous(size_t nbytes) {
  void* pages = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

void* map_huge(size_t nbytes) {
  auto* start = static_cast<char*>(map_anonymous(nbytes + kHugePage));
  if (!start) return nullptr;
  char* aligned = start + (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
  const size_t before = static_cast<size_t>(aligned - start);
  if (before > 0) munmap(start, before);
  munmap(aligned + nbytes, kHugePage - before);
  // Advice only: without huge pages the memory is slower to touch but as good.
  madvise(aligned, nbytes, MADV_HUGEPAGE);
  return aligned;
}

}  // namespace

void* map_pages(size_t nbytes) {
  void* pages = nbytes >= kHugePage ? map_huge(nbytes) : map_anonymous(nbytes);
  if (!pages) return nullptr;
  const int64_t mapped = g_mapped.fetch_add(static_cast<int64_t>(nbytes)) + static_cast<int64_t>(nbytes);
  for (int64_t peak = g_peak.load(); peak < mapped && !g_peak.compare_exchange_weak(peak, mapped);) {
  }
  return pages;
}

void unmap_pages(void* pages, size_t nbytes) {
  munmap(pages, nbytes);
  g_mapped.fetch_sub(static_cast<int64_t>(nbytes));
}

size_t total_memory() {
  static constinit std::atomic<size_t> known{0};  // several threads may find it at once: all find the same
  size_t total = known.load(std::memory_order_relaxed);
  if (total > 0) return total;
  struct sysinfo system;
  total = std::numeric_limits<size_t>::max() / 2;
  if (sysinfo(&system) == 0) total = (static_cast<size_t>(system.totalram) + system.totalswap) * system.mem_unit;
  for (const MemoryGroup& group : memory_groups()) total = std::min(total, group.limit + group.swap_limit);
  known.store(total, std::memory_order_relaxed);
  return total;
}

size_t available_memory() {
  size_t available = std::numeric_limits<size_t>::max();
  std::ifstream file("/proc/meminfo");
  for (std::string key, rest; file >> key; std::getline(file, rest)) {
    size_t kilobytes;
    if (key == "MemAvailable:" && file >> kilobytes) {
      available = kilobytes << 10;
      break;
    }
  }
  for (const MemoryGroup& group : memory_groups()) {
    const size_t used = group.used();
    available = std::min(available, group.limit - std::min(used, group.limit));
  }
  return available;
}

MappedBytes mapped_bytes() { return {g_mapped.load(), g_peak.load()}; }

void reset_mapped_peak() { g_peak.store(g_mapped.load()); }

}  // namespace mica::detail
