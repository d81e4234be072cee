// Arranges the calls of a recording on devices whose backend can fuse calls (mica/backend/fusion.h) into groups: loops,
// products of one row, and norms with their neighbours.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/fused_attention.h"
#include "compiler/fused_loop.h"
#include "compiler/fused_norms.h"
#include "compiler/fused_products.h"
#include "compiler/plan.h"

namespace mica::recording {

// Replaces each call that reads rows which others wrote in halves, or writes rows which others read in halves, by two
// calls, one for each half. Dimensions of one element are left out. New calls are put into `made`.
std::vector<const Call*> in_halves(const std::vector<const Call*>& calls, std::deque<MadeCall>& made);

// The number of the call, among the `count` that a plan was made of, that a call of a group was made of.
size_t origin(const Call* call, const Call* calls, size_t count);

class FusedGroup {
 public:
  explicit FusedGroup(const Call& first);
  // Takes the call in behind those that the group has. Returns false where they cannot run as one. `stored` says by
  // slot which results are stored.
  bool join(const Call& call, const std::vector<char>& stored);
  // Takes the one call of an earlier group in, before its own. Norms and products do.
  bool absorb(const FusedGroup& earlier);
  // Takes in the calls of a later group, a loop, behind its own. Products do, where the loop reads a result of theirs.
  bool absorb_loop(const FusedGroup& later, const std::vector<char>& stored);
  // Takes in the calls of the groups before it where they are a norm that was written out. Products do.
  bool absorb_written_norm(const FusedGroup* groups, size_t count, const std::vector<char>& stored);
  // Whether the calls can still run as one when these slots are in memory. If not, the group has to fall apart: its
  // calls run one by one, and all that they use is in memory.
  bool fits(const std::vector<char>& in_memory) const;
  void fall_apart() { apart_ = true; }
  bool runs_one_by_one() const { return apart_ || calls_.size() == 1; }
  bool is_loop() const { return !norm_ && !products_ && in_loop(*calls_[0]); }
  bool is_products() const { return products_ && !apart_; }
  bool is_attention() const { return calls_[0]->form == Call::Form::Attention; }
  // Whether this group, of products, may read its constants while an earlier one of the same device still runs: that
  // writes none of them.
  bool may_overlap(const FusedGroup& earlier) const;
  bool is_sum() const { return calls_[0]->form == Call::Form::Sum; }
  // Whether a call, or a group, that is not part of this group has to run after it.
  bool precedes(const Call& call) const;
  bool precedes(const FusedGroup& later) const;
  const std::vector<const Call*>& calls() const { return calls_; }
  // Whether some of its results may never be stored.
  bool keeps_results() const { return calls_.size() > 1 && !is_attention(); }
  bool uses(int slot) const;
  bool writes(int slot) const;
  // Takes over the calls of a group that need not run, because this group does without what they write.
  void stands_for(const FusedGroup& group) { calls_.insert(calls_.end(), group.calls_.begin(), group.calls_.end()); }
  // Whether the group can be a part of a sequence: it is a loop of few elements or a sum.
  bool is_short() const;
  // Writes the group's loop, the first time that it is asked for, and fills it in. Returns null where its instructions
  // are too many.
  const FusedLoop* write(const std::vector<Slot>& slots, const std::vector<char>& in_memory) const;
  // The group's sum, as a part of a sequence.
  FusedSum sum(const std::vector<Slot>& slots) const;
  // Runs the calls. Returns whether they ran as code that was made for them. `before` is the group that ran directly
  // before, or null. `early` is for products: see FusedProducts.
  bool run(const std::vector<Slot>& slots, const std::vector<char>& in_memory, const FusedGroup* before = nullptr,
           bool early = false) const;

 private:
  // How the calls use a storage.
  struct Use {
    int slot;
    Access access;
    bool written;
  };
  bool note(const Call& call, std::vector<Use>& uses) const;
  bool join_products(const Call& call, const std::vector<char>& stored);

  std::vector<const Call*> calls_;
  std::optional<NormChain> norm_;  // of float32
  std::optional<ProductChain> products_;
  std::vector<Use> uses_;
  bool apart_ = false;
  mutable std::unique_ptr<WrittenLoop> written_;
};

class FusedPlan {
 public:
  // Takes those of the `calls` that are needed and run on another device than the CPU.
  FusedPlan(const Call* calls, int count, const std::vector<Slot>& slots, const std::vector<bool>& needed);
  const std::vector<FusedGroup>& groups() const { return groups_; }
  bool uses(int slot) const { return uses_[slot] != 0; }
  bool in_memory(int slot) const { return in_memory_[slot]; }
  int64_t kept_apart() const { return kept_; }  // the bytes of results that are never stored
  std::string describe() const;
  // Runs the groups. Returns how many of them ran as code that was made for them. After an error, `progress` says how
  // far each of the `calls` has come that the plan was made of.
  int64_t run(const Call* calls, const std::vector<Slot>& slots, std::vector<Progress>& progress) const;
  // By call, of those that the plan was made of: whether it runs by its own kernel.
  std::vector<char> run_alone(const Call* calls, int count) const;
  // Gives calls that were made of others the numbers that those have now.
  void take_numbers();

 private:
  void absorb_into_last();
  bool absorb_written_norm();
  void absorb_loops();
  void read_heads_in_place(const Call* calls, int count);
  struct Heads {
    Operand source;    // what attention can read
    size_t group;      // that copies it
    const Call* copy;  // by which the group does it, among the calls that the plan is made of
  };
  std::optional<Heads> heads_of(size_t attention, int operand, const Call* calls, int count) const;
  bool begins_early(size_t group) const;
  bool run_sequence(size_t first, size_t last, const std::vector<Slot>& slots) const;
  void note(size_t first, size_t last, const Call* calls, std::vector<Progress>& progress) const;

  std::deque<MadeCall> made_;  // calls of groups that were made of the plan's calls
  std::vector<FusedGroup> groups_;
  std::vector<char> in_memory_;
  std::vector<int> uses_;  // by slot: how many groups use it
  int64_t kept_ = 0;
};

}  // namespace mica::recording
