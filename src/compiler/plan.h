// How the groups of a recording run: how each is cut into pieces, and which intermediate results live in a buffer of a
// piece's size instead of in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/groups.h"
#include "compiler/segments.h"

namespace mica::recording {

struct Slot {
  Storage storage;
  bool written = false;
  bool keeps = false;  // what kernels have made of it stays: calls that were put off read it as a weight
};

class Epilogue;

struct GroupPlan {
  int cut = 0;         // the dimension that is cut into pieces; those before it are walked through index by index
  int64_t range = 0;   // indices of it in a piece
  int64_t pieces = 0;  // along it
  int64_t outer = 1;   // the product of the dimensions before it
  int64_t work = 0;    // elements of a piece, of all calls together
  size_t scratch = 0;  // bytes of buffers
  std::vector<int64_t> buffers;  // by slot: where in the scratch memory, or -1
  std::vector<int> order;        // the group's calls as they run
  std::vector<Unit> units;       // these, by what runs at once on a piece
  std::vector<Segment> segments;
};

class Plan {
 public:
  // Of `count` calls; behind them there is room for `spare` more, halves of some of them.
  Plan(Call* calls, int count, int spare, const std::vector<Slot>& slots);
  ~Plan();

  const Grouping& grouping() const { return grouping_; }
  const GroupPlan& operator[](size_t group) const { return plans_[group]; }
  const std::vector<bool>& needed() const { return needed_; }
  int dead() const { return dead_; }            // calls that nobody needs
  int64_t kept_apart() const { return kept_; }  // bytes that do not reach memory
  bool in_memory(int slot) const { return in_memory_[slot]; }
  int last_use(int slot) const { return last_use_[slot]; }  // the last group that uses a slot
  // The group's calls run on the blocks of a convolution, which they are computed with; or null.
  const Epilogue* epilogue(size_t group) const { return epilogues_[group].get(); }
  // It is a convolution that is computed with a later group.
  bool runs_later(size_t group) const { return runs_later_[group]; }
  size_t loops() const;  // groups, without those that run with a later one
  std::string describe(const Call* calls, const std::vector<Slot>& slots) const;

 private:
  static std::vector<bool> find_needed(const Call* calls, int count, const std::vector<Slot>& slots);
  void find_epilogues(const Call* calls, const std::vector<Slot>& slots, const std::vector<int>& users);
  void cut(size_t group, const Call* calls);
  void give_buffers(size_t group, const Call* calls, const std::vector<char>& in_registers);
  bool can_take_over(const Call& call, int from, int to, size_t group) const;

  std::vector<bool> needed_;
  Grouping grouping_;
  std::vector<GroupPlan> plans_;
  std::vector<char> in_memory_;
  std::vector<int> last_use_;
  std::vector<std::unique_ptr<Epilogue>> epilogues_;  // by group
  std::vector<char> runs_later_;
  int dead_ = 0;
  int64_t kept_ = 0;
};

// A storage that nobody but the recording knows, and that has no memory yet.
inline bool is_dead(const Slot& slot) { return slot.storage->use_count() == 1; }
inline bool is_promised(const Slot& slot) { return !slot.storage->address(); }

// The whole of a call at once, as without a recording.
void run_alone(const Call& call, const std::vector<Slot>& slots);
void run(const Plan& plan, size_t group, const Call* calls, const std::vector<Slot>& slots);

}  // namespace mica::recording
