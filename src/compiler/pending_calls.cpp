#include "compiler/pending_calls.h"

#include "compiler/fused.h"
#include "core/kept.h"
#include "core/recorded_convolution.h"
#include "mica/error.h"

namespace mica::recording {

int PendingCalls::find(const StorageImpl* storage) const {
  for (size_t i = hash(storage);; i = (i + 1) % kTable) {
    if (table_[i] < 0) return -1;
    if (slots_[table_[i]].storage.get() == storage) return table_[i];
  }
}

// The slot of a storage, which is a new one where no call has used it yet. What kernels have kept of the storage, as a
// packed weight, is forgotten unless all its calls only read it as a weight (`keeps`).
int PendingCalls::slot_of(StorageImpl* storage, bool keeps) {
  size_t i = hash(storage);
  for (; table_[i] >= 0; i = (i + 1) % kTable) {
    Slot& slot = slots_[table_[i]];
    if (slot.storage.get() != storage) continue;
    if (slot.keeps && !keeps) kept::forget(*storage);
    slot.keeps &= keeps;
    return table_[i];
  }
  if (!keeps && storage->address() && storage->moved()) kept::forget(*storage);
  table_[i] = static_cast<int>(slots_.size());
  filled_.push_back(i);
  slots_.push_back({Storage(storage), false, keeps});
  storage->hold();
  return table_[i];
}

void PendingCalls::add() {
  Call& call = calls_[count_];
  const int weight = is_convolution(call) ? kConvolutionWeight : -1;
  for (int k = 0; k < call.noperands; ++k) {
    Operand& o = call.operands[k];
    if (!o.storage) continue;
    o.slot = slot_of(o.storage, k == weight);
    if (k >= call.noutputs || slots_[o.slot].written) continue;
    slots_[o.slot].written = true;
    o.storage->set_written_later(true);
  }
  ++count_;
}

void PendingCalls::forget() {
  for (const size_t i : filled_) table_[i] = -1;
  filled_.clear();
  count_ = 0;
  for (Slot& slot : slots_) {
    if (slot.written) slot.storage->set_written_later(false);
    slot.storage->unhold();
    if (is_promised(slot)) slot.storage->break_promise();
  }
  slots_.clear();
}

void PendingCalls::run(const char* reason, const std::string& asked_from) {
  if (count_ == 0) return;
  if (count_ == 1 && !explains && calls_[0].form != Call::Form::Indexed) return run_one();
  const Plan plan(calls_.get(), count_, kMostHalves, slots_);
  const FusedPlan fused(calls_.get(), count_, slots_, plan.needed());
  // All memory is allocated first. Where there is none, nothing has changed, and whoever asks again gets the error
  // again.
  const size_t groups = plan.grouping().groups().size();
  for (int s = 0; s < static_cast<int>(slots_.size()); ++s)
    if ((plan.last_use(s) >= 0 && plan.in_memory(s)) || (fused.uses(s) && fused.in_memory(s)))
      slots_[s].storage->keep_promise();
  counts.flushes += 1;
  counts.calls += count_;
  counts.dead += plan.dead();
  counts.loops += static_cast<int64_t>(plan.loops() + fused.groups().size());
  counts.kept_apart += plan.kept_apart() + fused.kept_apart();
  if (explains)
    explanation +=
        cat("flush", *reason ? " at " : "", reason, asked_from.empty() ? "" : ", ", asked_from, ": ", count_,
            " calls, ", plan.dead(), " of them dead\n", plan.describe(calls_.get(), slots_), fused.describe());
  struct Forget {
    PendingCalls* r;
    ~Forget() { r->forget(); }
  } forget_after{this};
  for (size_t g = 0; g < groups; ++g) recording::run(plan, g, calls_.get(), slots_);
  counts.generated += fused.run(slots_);
}

// Runs a single call, which needs no plan.
void PendingCalls::run_one() {
  const Call& call = calls_[0];
  counts.flushes += 1;
  counts.calls += 1;
  bool needed = false;
  for (int k = 0; k < call.noutputs; ++k) {
    const Slot& slot = slots_[call.operands[k].slot];
    needed |= !is_dead(slot) || !is_promised(slot);
  }
  if (needed) {
    for (const Slot& slot : slots_) slot.storage->keep_promise();
    counts.loops += 1;
  } else {
    counts.dead += 1;
  }
  struct Forget {
    PendingCalls* r;
    ~Forget() { r->forget(); }
  } forget_after{this};
  if (needed) run_alone(call, slots_);
}

}  // namespace mica::recording
