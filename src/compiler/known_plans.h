// Plans that are kept for the next recordings of the same calls. A program makes the same calls again and again, and to
// plan calls on few elements takes longer than to run them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "compiler/fused.h"

namespace mica::recording {

// A plan with calls of its own. These have the numbers of the recording that runs; storages are known by slot alone.
// All of them are calls of the CPU, or all are calls of devices whose backend fuses calls.
class KnownPlan {
 public:
  KnownPlan(const Call* calls, int count, const std::vector<Slot>& slots);
  ~KnownPlan();
  void take_numbers(const Call* calls);
  // Whether it can be used: plans that cut calls into halves on the CPU cannot.
  bool usable() const { return fused_ || plan_; }
  // By call: whether it runs by its own kernel, and with no other call.
  const std::vector<char>& run_alone() const { return run_alone_; }

  const Call* calls() const { return calls_.get(); }
  const FusedPlan* fused() const { return fused_.get(); }     // on such devices; else null
  const Plan* plan() const { return plan_.get(); }            // on the CPU; else null
  const std::vector<int>& stored() const { return stored_; }  // the slots that are in memory
  // By call: whether anybody needs it, and how many nobody needs.
  const std::vector<bool>& needed() const { return needed_; }
  int dead() const { return dead_; }
  size_t bytes() const;

 private:
  friend class KnownPlans;
  std::unique_ptr<Call[]> calls_;
  int count_, dead_ = 0;
  size_t slots_;
  std::unique_ptr<FusedPlan> fused_;
  std::unique_ptr<Plan> plan_;
  std::vector<int> stored_;
  std::vector<bool> needed_;
  std::vector<char> run_alone_;
  std::vector<uint64_t> key_;         // all that the plan depends on, and some words more
  size_t words_ = 0;                  // of the key
  std::array<KnownPlan*, 2> next_{};  // plans that were asked for after this one
};

class KnownPlans {
 public:
  // The plan of the calls, with their numbers. Null where they are of kinds whose plans are not kept, or where they
  // come for the first time: programs whose calls are never the same twice do not pay for what is kept.
  const KnownPlan* find(const Call* calls, int count, const std::vector<Slot>& slots);

 private:
  bool write_key(const Call* calls, int count, const std::vector<Slot>& slots);
  bool has_key(const KnownPlan& plan) const;
  KnownPlan* look_up(const Call* calls, int count, const std::vector<Slot>& slots);

  std::unique_ptr<uint64_t[]> key_;  // of the recording that is asked for
  size_t words_ = 0, room_ = 0;
  std::unordered_multimap<uint64_t, std::unique_ptr<KnownPlan>> plans_;  // by the hash of the key
  size_t bytes_ = 0;                                                     // of all plans
  KnownPlan* last_ = nullptr;
  std::vector<uint64_t> seen_;  // hashes of keys that were asked for, by their lowest bits
};

}  // namespace mica::recording
