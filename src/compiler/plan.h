// The plan by which the groups of a recording run: how each is cut into pieces, and which intermediate results have
// only a buffer of a piece's size.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "compiler/groups.h"
#include "compiler/segments.h"
#include "core/interleaved.h"

namespace mica::recording {

inline constexpr int kMostHalves = 32;  // calls that a plan may make of others, as halves of them

// A storage that the calls of a recording use. Their operands name it by its index.
struct Slot {
  Storage storage;
  bool written = false;        // whether a call writes it
  bool keeps = false;          // whether the arrangements of it that kernels keep stay: calls only read it as a weight
  bool promised = false;       // whether it had no memory when its first call came, and no call has written it since
  bool held = true;            // by this recording; a storage that is written first has only the mark of that
  bool wanted = false;         // whether a convolution will read it that is faster where it lies interleaved
  Interleaving interleaved{};  // how it lies interleaved, when the calls run and once they have run
};

// How far a call has come while a recording runs. Of calls that have begun, some pieces may have been computed.
enum class Progress : uint8_t { Waits, Begun, Done };

// Gives a call the numbers and further arguments of another one that is the same call otherwise.
void take_numbers(Call& to, const Call& from);
// The same for a call that only runs as an instruction of a loop.
inline void take_numbers_of_step(Call& to, const Call& from) {
  std::copy(std::begin(from.step.numbers), std::end(from.step.numbers), to.step.numbers);
  std::copy(std::begin(from.step.parameters), std::end(from.step.parameters), to.step.parameters);
}

class Epilogue;

struct GroupPlan {
  int cut = 0;         // the dimension that is cut into pieces; a piece has one index of each dimension before it
  int64_t range = 0;   // how many indices of that dimension a piece has
  int64_t pieces = 0;  // how many pieces there are along it
  int64_t outer = 1;   // the product of the sizes before it
  int64_t work = 0;    // the elements of a piece, of all calls together
  size_t scratch = 0;  // the bytes of all buffers
  std::vector<int64_t> buffers;  // by slot: where its buffer begins in the scratch memory, or -1
  std::vector<int> order;        // the group's calls in the order in which they run
  std::vector<Unit> units;       // the same calls, by what runs at once on a piece
  std::vector<Segment> segments;
};

class Plan {
 public:
  // Plans `count` calls. Behind them there is room for `spare` more, which the plan makes where it cuts calls into
  // halves.
  Plan(Call* calls, int count, int spare, const std::vector<Slot>& slots);
  ~Plan();

  const Grouping& grouping() const { return grouping_; }
  const GroupPlan& operator[](size_t group) const { return plans_[group]; }
  const std::vector<bool>& needed() const { return needed_; }
  int dead() const { return dead_; }            // how many calls nobody needs
  int64_t kept_apart() const { return kept_; }  // the bytes of results that have no memory of their own
  bool in_memory(int slot) const { return in_memory_[slot]; }
  int last_use(int slot) const { return last_use_[slot]; }  // the last group that uses a slot, or -1
  // The epilogue that the group is, if its calls run on the blocks of a convolution; or null.
  const Epilogue* epilogue(size_t group) const { return epilogues_[group].get(); }
  void take_numbers_of_epilogues(const Call* calls);  // of calls like those that were planned
  size_t bytes_of_epilogues() const;
  // Whether the group is a convolution, or a product before it, that runs as a part of a later group.
  bool runs_later(size_t group) const { return runs_later_[group]; }
  // By call, of the first `count`: whether it runs with no other call.
  std::vector<char> run_alone(int count) const;
  bool made_halves() const { return made_halves_; }  // whether calls were cut into halves, which lie behind the calls
  size_t loops() const;  // how many groups there are, without those that run as a part of a later one
  // Whether storages that lie interleaved are read as they are. If not, they are put in order before the plan runs.
  bool takes_interleaved() const { return takes_interleaved_; }
  // How the results of a group lie interleaved, and their slots.
  const Interleaving& interleaving(size_t group) const { return interleavings_[group]; }
  const std::vector<int>& interleaved_results(size_t group) const { return interleaved_results_[group]; }
  // Notes how far the calls have come that run with a group.
  void note(size_t group, Progress reached, std::vector<Progress>& progress) const;
  std::string describe(const Call* calls, const std::vector<Slot>& slots) const;
  // By call: whether anybody can ask for what it computes.
  static std::vector<bool> find_needed(const Call* calls, int count, const std::vector<Slot>& slots);

 private:
  void find_epilogues(const Call* calls, const std::vector<Slot>& slots, const std::vector<int>& users,
                      bool interleaves);
  bool interleave(const Call* calls, const std::vector<Slot>& slots, const std::vector<int>& users);
  bool try_to_interleave(const Call* calls, const std::vector<Slot>& slots, const std::vector<int>& users);
  bool uses_interleaved(size_t group, int slot, const Call* calls) const;
  static bool takes_interleaved_source(const Call& convolution, const std::vector<Slot>& slots);
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
  std::vector<Interleaving> interleavings_;            // by group
  std::vector<std::vector<int>> interleaved_results_;  // by group
  bool takes_interleaved_ = false;
  int dead_ = 0;
  bool made_halves_ = false;
  int64_t kept_ = 0;
};

// Whether nobody but the recording knows a storage, and whether nobody else can know its memory.
inline bool is_dead(const Slot& slot) { return slot.storage->use_count() == 1; }
inline bool is_promised(const Slot& slot) { return slot.promised; }

// A convolution's views. Those of images that lie interleaved have the strides of their memory.
struct ConvolutionViews {
  TensorView views[kOperands];
  int64_t strides[kOperands][kDims];
  ConvolutionViews(const Call& call, const std::vector<Slot>& slots, bool source_interleaved, bool result_interleaved);
};

// Runs the whole of a call at once, as without a recording.
void run_alone(const Call& call, const std::vector<Slot>& slots);
// Runs a group of the plan.
void run(const Plan& plan, size_t group, const Call* calls, const std::vector<Slot>& slots);

}  // namespace mica::recording
