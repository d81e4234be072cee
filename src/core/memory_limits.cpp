#include "memory_limits.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <optional>

namespace mica::detail {
namespace {

// The number that a file holds; none where there is no such file, or where it says "max".
std::optional<size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  size_t number;
  if (!(file >> number)) return std::nullopt;
  return number;
}

size_t field_of(const std::string& path, const char* name) {
  std::ifstream file(path);
  size_t number;
  for (std::string key; file >> key >> number;)
    if (key == name) return number;
  return 0;
}

// The first version writes an enormous number where it means none.
constexpr size_t kNoLimit = size_t{1} << 60;

void add_group(std::vector<MemoryGroup>& groups, const std::string& folder, bool is_first_version) {
  const auto limit = number_in(folder + (is_first_version ? "/memory.limit_in_bytes" : "/memory.max"));
  if (!limit || *limit >= kNoLimit) return;
  size_t swap = kNoLimit;
  if (is_first_version) {
    if (const auto both = number_in(folder + "/memory.memsw.limit_in_bytes"); both && *both < kNoLimit)
      swap = *both - std::min(*both, *limit);
  } else {
    swap = number_in(folder + "/memory.swap.max").value_or(kNoLimit);
  }
  groups.push_back({folder, is_first_version, *limit, swap});
}

// A group and those around it. Within a container the tree may begin at the group itself.
void add_groups(std::vector<MemoryGroup>& groups, const std::string& root, std::string group, bool is_first_version) {
  while (!group.empty() && group.back() == '/') group.pop_back();
  for (;; group.resize(group.rfind('/'))) {
    add_group(groups, root + group, is_first_version);
    if (group.rfind('/') == std::string::npos) return;
  }
}

}  // namespace

size_t MemoryGroup::used() const {
  const size_t all = number_in(folder + (is_first_version ? "/memory.usage_in_bytes" : "/memory.current")).value_or(0);
  const size_t files = field_of(folder + "/memory.stat", is_first_version ? "total_inactive_file" : "inactive_file");
  return all - std::min(all, files);
}

std::vector<MemoryGroup> find_memory_groups(const std::string& membership, const std::string& root) {
  std::vector<MemoryGroup> groups;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    // number:controllers:group
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") add_groups(groups, root, line.substr(second + 1), false);
    if (controllers.find(",memory,") != std::string::npos)
      add_groups(groups, root + "/memory", line.substr(second + 1), true);
  }
  return groups;
}

const std::vector<MemoryGroup>& memory_groups() {
  static constinit std::atomic<const std::vector<MemoryGroup>*> known{nullptr};
  if (const auto* found = known.load(std::memory_order_acquire)) return *found;
  const auto* found = new std::vector<MemoryGroup>(find_memory_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
  const std::vector<MemoryGroup>* before = nullptr;
  if (known.compare_exchange_strong(before, found, std::memory_order_acq_rel)) return *found;
  delete found;
  return *before;
}

}  // namespace mica::detail
