// The calls of a recording on devices whose backend can fuse them (mica/backend/fusion.h): which of them become one
// loop, and the list of instructions that each loop is.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "compiler/fused_norms.h"
#include "compiler/plan.h"
#include "mica/backend/fusion.h"

namespace mica::recording {

// Whether a call computes element by element.
inline bool in_loop(const Call& call) { return call.form == Call::Form::Loop || call.form == Call::Form::Indexed; }

// How a call reaches a storage: two that reach it alike touch, for each element of the loop, the same bytes.
struct Access {
  int64_t offset;
  int64_t strides[kFusedDims];
  DType dtype;
  int index = -1;  // the slot of the number that says where it lies, and where in it
  int64_t index_offset = 0;
  IndexedPlace place{};
  friend bool operator==(const Access&, const Access&) = default;
};

// The calls, of which those are halves that read what was written in halves, or write what is read so. These are put
// into `made`. Dimensions of one element are left out.
std::vector<const Call*> in_halves(const std::vector<const Call*>& calls, std::deque<Call>& made);

class FusedGroup {
 public:
  explicit FusedGroup(const Call& first);
  // Takes the call in, after those that it has. False where that would not be one loop.
  bool join(const Call& call, const std::vector<char>& stored);
  // Takes the group in, before its calls: only a norm does.
  bool absorb(const FusedGroup& earlier);
  // Whether the loop is one with these slots in memory. If not, its calls run one by one, and all of it is in memory.
  bool fits(const std::vector<char>& in_memory) const;
  void fall_apart() { apart_ = true; }
  bool is_loop() const { return !norm_ && in_loop(*calls_[0]); }
  bool is_sum() const { return calls_[0]->form == Call::Form::Sum; }
  // Whether a call that is not part of the group has to run after it.
  bool precedes(const Call& call) const;
  bool precedes(const FusedGroup& later) const;
  const std::vector<const Call*>& calls() const { return calls_; }
  bool uses(int slot) const;
  // Whether it can be part of a sequence, and what part: the instructions of its loop (false where they are too many),
  // or its sum.
  bool is_short() const;
  bool write(FusedLoop& loop, const std::vector<Slot>& slots, const std::vector<char>& in_memory) const;
  FusedSum sum(const std::vector<Slot>& slots) const;
  // Returns whether it ran as code that was made for it.
  bool run(const std::vector<Slot>& slots, const std::vector<char>& in_memory) const;

 private:
  struct Use {
    int slot;
    Access access;
    bool written;
  };
  bool note(const Call& call, std::vector<Use>& uses) const;
  bool join_products(const Call& call);
  void run_products(const std::vector<Slot>& slots) const;

  std::vector<const Call*> calls_;
  std::optional<NormChain> norm_;
  std::vector<Use> uses_;
  bool apart_ = false;
};

class FusedPlan {
 public:
  // Of `calls` those on other devices than the CPU that are needed.
  FusedPlan(const Call* calls, int count, const std::vector<Slot>& slots, const std::vector<bool>& needed);
  const std::vector<FusedGroup>& groups() const { return groups_; }
  bool uses(int slot) const { return uses_[slot] != 0; }
  bool in_memory(int slot) const { return in_memory_[slot]; }
  int64_t kept_apart() const { return kept_; }  // bytes that do not reach memory
  std::string describe() const;
  int64_t run(const std::vector<Slot>& slots) const;  // how many ran as code that was made for them

 private:
  void absorb_into_last();
  bool run_sequence(size_t first, size_t last, const std::vector<Slot>& slots) const;

  std::deque<Call> halves_;
  std::vector<FusedGroup> groups_;
  std::vector<char> in_memory_;
  std::vector<int> uses_;  // by how many groups, by slot
  int64_t kept_ = 0;
};

}  // namespace mica::recording
