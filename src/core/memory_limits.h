// The share of the machine's memory that control groups grant to a process.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mica::detail {

// A group that has a limit. Groups lie within each other: each of their limits holds.
struct MemoryGroup {
  std::string folder;
  bool is_first_version;  // whether it has the first of the kernel's two interfaces
  size_t limit;
  size_t swap_limit;  // beyond `limit`

  // The bytes in use, without those that the system can take back at once: files that nobody has read lately.
  size_t used() const;
};

// The groups of a process, by its file /proc/self/cgroup, in the tree that is mounted at `root`.
std::vector<MemoryGroup> find_memory_groups(const std::string& membership, const std::string& root);

// The groups of this process, found once.
const std::vector<MemoryGroup>& memory_groups();

}  // namespace mica::detail
