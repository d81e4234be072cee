// Arranges calls into groups that run together, piece by piece: what one call of a group computes for a piece is read
// by the others while it is in the first cache.
#pragma once

#include <string_view>
#include <vector>

#include "core/recorded_call.h"

namespace mica::recording {

inline constexpr int kLookBack = 32;  // the number of latest groups that a call may still join

// How the memory of a storage that a group writes is cut along the leading dimensions: what belongs to index i of
// dimension d begins i * steps[d] bytes behind `begin` and ends before that of index i + 1 begins.
struct Partition {
  int64_t begin;
  int64_t steps[kDims];
};

struct Group {
  std::vector<int> calls;  // in the order of the recording
  int lead = 0;            // the number of leading dimensions along which all calls can be cut
  int64_t extents[kDims];  // the sizes of these dimensions
  const char* apart = "";  // why its first call did not join an earlier group
};

class Grouping {
 public:
  // The calls use `slots` storages. Calls that are not `needed`, whose results nobody can ask for, are left out.
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
  bool refuse(const char* reason) {  // the answer of join() where it is no
    refusal_ = reason;
    return false;
  }
  void open(int call);                                // a group of its own
  bool conflicts(int group, const Call& call) const;  // whether the call has to run after the group
  // The number of leading dimensions, at most `lead`, along which an operand stays within its piece of a partition.
  int fit(const Call& call, int operand, const Partition& partition, int lead) const;
  // Sets the partition that an output is cut by. Returns the number of leading dimensions, at most `lead`, whose
  // indices have memory of their own.
  int lay_out(const Call& call, int operand, int lead, Partition& partition) const;
  void note(int group, int call);  // adds the call to the group, and what it reads and writes

  const Call* calls_;
  int slots_;
  const char* refusal_ = "";  // why join() has refused last
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
// Whether a call on rows adds up what lies behind its leading dimensions, and whether the sum is then divided by the
// number of elements.
inline bool is_mean(const Call& call) { return !is_pointwise(call) && std::string_view(call.name) == "reduce_mean"; }
inline bool is_sum_or_mean(const Call& call) {
  return is_mean(call) || (!is_pointwise(call) && std::string_view(call.name) == "reduce_sum");
}
// How many elements an operand has for one index of its leading dimensions; of a whole call, the operand with most.
int64_t elements_behind(const Call& call, int operand, int lead);
int64_t elements_behind(const Call& call, int lead);

}  // namespace mica::recording
