// Host memory for tensors: 64-byte aligned, uninitialised, cached so that a program in its steady state never asks the
// system for a page.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mica {

inline constexpr size_t kCpuAlignment = 64;

// The pointer is null exactly when nbytes is 0. Throws Error(OutOfMemory).
void* cpu_allocate(size_t nbytes);

// Takes the size that was asked for; any thread may free what another one allocated.
void cpu_free(void* memory, size_t nbytes);

// Returns cached memory to the system, and returns how many bytes that was. It leaves the blocks in the caches of other
// running threads, and the spans of small blocks of which some are in use.
size_t cpu_trim();

struct AllocatorStats {
  int64_t allocated_bytes = 0;  // asked for and not yet freed
  int64_t reserved_bytes = 0;   // held from the system: what is allocated, its rounding, and what is cached
  int64_t peak_allocated = 0;   // since the start or the last reset; exact while one thread allocates
  int64_t peak_reserved = 0;
  int64_t allocations = 0;
  int64_t frees = 0;
  int64_t cache_hits = 0;            // allocations of memory that had been used before
  int64_t page_faulting_allocs = 0;  // allocations of memory fresh from the system
};

AllocatorStats cpu_allocator_stats();
void cpu_reset_peak_stats();

}  // namespace mica
