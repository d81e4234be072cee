// What a control group grants a process of the machine's memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mica::detail {

// A group that has a limit. Groups lie within each other: each of their limits holds.
struct MemoryGroup {
  std::string folder;
  bool is_first_version;  // of the kernel's two interfaces
  size_t limit;
  size_t swap_limit;  // beyond `limit`

  // Less what the system can take back at once: files that nobody has read of late.
  size_t used() const;
};

// The groups of a process, by its file /proc/self/cgroup, in the tree that is mounted at `root`.
std::vector<MemoryGroup> find_memory_groups(const std::string& membership, const std::string& root);

// This process's, found once.
const std::vector<MemoryGroup>& memory_groups();

}  // namespace mica::detail
