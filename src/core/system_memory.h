// Pages of memory from the system, which are counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mica::detail {

inline constexpr size_t kHugePage = size_t{2} << 20;

constexpr size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Zeroed pages, or null where the system has none. From kHugePage bytes on, aligned to huge pages and backed by them.
void* map_pages(size_t nbytes);
void unmap_pages(void* pages, size_t nbytes);

// RAM and swap together, or what the process's control group is granted of them: no single request can be larger.
size_t total_memory();

// The memory that can still be had from the system, or from the control group. It reads some files, which takes tens of
// microseconds.
size_t available_memory();

struct MappedBytes {
  int64_t now, peak;
};
MappedBytes mapped_bytes();
void reset_mapped_peak();

}  // namespace mica::detail
