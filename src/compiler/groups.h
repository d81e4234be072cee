// Groups of calls that run together, piece by piece: every piece of what one of them computes is read by the others
// while it is in the first cache.
#pragma once

#include <vector>

#include "core/recorded_call.h"

namespace mica::recording {

inline constexpr int kLookBack = 32;  // groups that a call may still join

// How the memory of a storage that a group writes is cut: along the leading dimensions, index i of dimension d begins
// i * steps[d] bytes behind `begin`, and nothing of it lies beyond the next index.
struct Partition {
  int64_t begin;
  int64_t steps[kDims];
};

struct Group {
  std::vector<int> calls;  // in the order of the recording
  int lead = 0;            // leading dimensions along which all calls can be cut
  int64_t extents[kDims];  // of these
  const char* apart = "";  // why its first call did not join a group before
};

class Grouping {
 public:
  // `slots` storages; calls whose results nobody can ask for are left out (`needed`).
  Grouping(const Call* calls, int count, int slots, const std::vector<bool>& needed);

  const std::vector<Group>& groups() const { return groups_; }
  // The partition of a slot that the group writes.
  const Partition& partition(int group, int slot) const { return uses_[group].partitions[slot]; }
  bool writes(int group, int slot) const { return uses_[group].writes[slot]; }
  bool reads(int group, int slot) const { return uses_[group].reads[slot]; }

 private:
  struct Uses {
    std::vector<char> reads, writes;  // by slot
    std::vector<Partition> partitions;
  };
  bool join(int group, int call);
  bool refuse(const char* reason) {  // to join, and why
    refusal_ = reason;
    return false;
  }
  void open(int call);
  bool conflicts(int group, const Call& call) const;
  // The leading dimensions, at most `lead`, along which an access stays within its piece of a partition.
  int fit(const Call& call, int operand, const Partition& partition, int lead) const;
  int lay_out(const Call& call, int operand, int lead, Partition& partition) const;
  void note(int group, int call);

  const Call* calls_;
  int slots_;
  const char* refusal_ = "";
  std::vector<Group> groups_;
  std::vector<Uses> uses_;
};

inline bool is_pointwise(const Call& call) { return call.run_loop != nullptr; }
inline const int64_t* sizes_of(const Call& call, int operand) {
  return is_pointwise(call) ? call.shape : call.operands[operand].sizes;
}
inline int dims_of(const Call& call, int operand) {
  return is_pointwise(call) ? call.ndim : call.operands[operand].ndim;
}
// The elements that an operand, or the whole call, has behind its leading dimensions.
int64_t elements_behind(const Call& call, int operand, int lead);
int64_t elements_behind(const Call& call, int lead);

}  // namespace mica::recording
