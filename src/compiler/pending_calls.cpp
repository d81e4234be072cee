#include "compiler/pending_calls.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "compiler/fused.h"
#include "compiler/unfinished.h"
#include "core/kept.h"
#include "core/recorded_convolution.h"
#include "mica/error.h"

namespace mica::recording {

void RarelyAwaitedLock::wait() {
  for (int tries = 0; taken_.exchange(true, std::memory_order_acquire); ++tries) {
    if (tries < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

int PendingCalls::find(const StorageImpl* storage) const {
  if (slots_.size() <= kListed) {
    for (int s = static_cast<int>(slots_.size()) - 1; s >= 0; --s)
      if (slots_[s].storage.get() == storage) return s;
    return -1;
  }
  for (size_t i = hash(storage);; i = (i + 1) % kTable) {
    if (table_[i] < 0) return -1;
    if (slots_[table_[i]].storage.get() == storage) return table_[i];
  }
}

void PendingCalls::put_into_table(int slot) {
  size_t i = hash(slots_[slot].storage.get());
  while (table_[i] >= 0) i = (i + 1) % kTable;
  table_[i] = slot;
  filled_.push_back(i);
}

// The slot of a storage, which is a new one where no call has used it yet. What kernels have kept of the storage, as a
// packed weight, is forgotten unless all its calls only read it as a weight (`keeps`). A storage that is marked as
// written later need not be held: whoever asks for its memory is stopped by the mark.
int PendingCalls::slot_of(StorageImpl* storage, bool keeps, bool written) {
  if (storage->moved()) {
    if (const int s = find(storage); s >= 0) {
      Slot& slot = slots_[s];
      if (slot.keeps && !keeps) kept::forget(*storage);
      slot.keeps &= keeps;
      return s;
    }
    if (!keeps && storage->address()) kept::forget(*storage);
  }
  const int s = static_cast<int>(slots_.size());
  slots_.push_back({Storage(storage), false, keeps, !storage->address(), !written});
  if (slots_.size() == kListed + 1) {
    for (int each = 0; each <= s; ++each) put_into_table(each);
  } else if (slots_.size() > kListed) {
    put_into_table(s);
  }
  if (!written) storage->hold();
  return s;
}

void PendingCalls::add() {
  Call& call = calls_[count_];
  const uint64_t kind = std::exchange(next_kind_, 0);
  kind_of_[count_] = kind;
  const int weight = is_convolution(call) ? kConvolutionWeight : -1;
  for (int k = 0; k < call.noperands; ++k) {
    Operand& o = call.operands[k];
    if (!o.storage) continue;
    o.slot = slot_of(o.storage, k == weight, k < call.noutputs);
    if (k >= call.noutputs || slots_[o.slot].written) continue;
    slots_[o.slot].written = true;
    o.storage->set_written_later(true);
  }
  ++count_;
}

void PendingCalls::make_room() {
  room_ = kMostOfGraph;
  std::unique_ptr<Call[]> calls(new Call[kMostOfGraph + kMostHalves]);
  std::unique_ptr<uint64_t[]> kinds(new uint64_t[kMostOfGraph]);
  std::copy_n(calls_.get(), count_, calls.get());
  std::copy_n(kind_of_.get(), count_, kinds.get());
  calls_ = std::move(calls), kind_of_ = std::move(kinds);
}

// A kind is known to run alone after this many calls. Of as many calls that then run at once, one is put off.
static constexpr uint32_t kEnoughAlone = 16, kCallsToTry = 64;

bool PendingCalls::is_known_alone(uint64_t hash) const {
  const Kind& kind = kinds_[hash / 2 % kKinds];
  return kind.hash.load(std::memory_order_relaxed) == hash &&
         kind.alone.load(std::memory_order_relaxed) >= kEnoughAlone && !explains;
}

bool PendingCalls::runs_alone(uint64_t hash) {
  bool alone = is_known_alone(hash);
  if (alone) {
    std::atomic<uint32_t>& asked = kinds_[hash / 2 % kKinds].asked;
    const uint32_t times = asked.load(std::memory_order_relaxed) + 1;
    asked.store(times, std::memory_order_relaxed);
    alone = times % kCallsToTry != 0;
  }
  next_kind_ = alone ? 0 : hash;
  return alone;
}

bool PendingCalls::runs_alone_for_sure(uint64_t hash) {
  if (!is_known_alone(hash)) return false;
  std::atomic<uint32_t>& asked = kinds_[hash / 2 % kKinds].asked;
  const uint32_t times = asked.load(std::memory_order_relaxed) + 1;
  if (times % kCallsToTry == 0) return false;
  asked.store(times, std::memory_order_relaxed);
  return true;
}

void PendingCalls::note_kind(uint64_t hash, bool alone) {
  Kind& kind = kinds_[hash / 2 % kKinds];
  constexpr auto kRelaxed = std::memory_order_relaxed;
  if (kind.hash.load(kRelaxed) == hash) {
    kind.alone.store(alone ? kind.alone.load(kRelaxed) + 1 : 0, kRelaxed);
  } else if (alone) {
    kind.hash.store(hash, kRelaxed);
    kind.alone.store(1, kRelaxed);
    kind.asked.store(0, kRelaxed);
  }
}

void PendingCalls::note_kinds(const std::vector<char>& alone) {
  for (int c = 0; c < count_; ++c)
    if (kind_of_[c]) note_kind(kind_of_[c], alone[c]);
}

void PendingCalls::let_go(Slot& slot) {
  if (slot.interleaved && slot.written && !is_dead(slot)) {
    interleaved.add(slot.storage, slot.interleaved);
    slot.written = false;  // it stays marked
  }
  if (slot.written) slot.storage->set_written_later(false);
  if (slot.held) slot.storage->unhold();
  if (!slot.storage->address() && is_dead(slot)) slot.storage->break_promise();
}

void PendingCalls::forget() {
  for (const size_t i : filled_) table_[i] = -1;
  filled_.clear();
  count_ = 0;
  for (Slot& slot : slots_) let_go(slot);
  slots_.clear();
  interleaved.drop_unused();
}

void PendingCalls::give_up(const std::string& reason) {
  for (Slot& slot : slots_)
    if (slot.written) {
      lose(slot.storage, reason);
      slot.storage->hold();
      slot.written = false;  // it stays marked
    }
  forget();
}

// What the exception says that is being handled.
static std::string text_of_error() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown error";
  }
}

// After an error: calls that can still run stay, and storages that can no longer be computed say so when they are used.
void PendingCalls::keep_rest(const std::string& reason, bool told, bool capture_failed) {
  const Unfinished rest = sort_out(calls_.get(), progress_, slots_, told, capture_failed);
  std::vector<char> used(slots_.size()), written(slots_.size());
  for (int c = 0; c < count_; ++c)
    for (int k = 0; k < calls_[c].noperands && rest.stays[c]; ++k) {
      if (!calls_[c].operands[k].storage) continue;
      used[calls_[c].operands[k].slot] = 1;
      if (k < calls_[c].noutputs) written[calls_[c].operands[k].slot] = 1;
    }
  std::vector<int> numbers(slots_.size(), -1);
  std::vector<Slot> left;
  left.reserve(slots_.size());
  for (size_t s = 0; s < slots_.size(); ++s)
    if (rest.lost[s]) lose(slots_[s].storage, reason);

  // Nothing from here on asks for memory.
  for (const size_t i : filled_) table_[i] = -1;
  filled_.clear();
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    if (rest.lost[s]) {
      slot.storage->hold();
      slot.written = false;  // it stays marked
    } else if (slot.written && !written[s]) {
      if (!slot.held) slot.storage->hold();
      slot.held = true;
      if (slot.interleaved) {
        interleaved.add(slot.storage, slot.interleaved);
      } else {
        slot.storage->set_written_later(false);
      }
      slot.written = false;
    }
    if (!used[s]) {
      let_go(slot);
      continue;
    }
    numbers[s] = static_cast<int>(left.size());
    left.push_back(slot);
  }
  left.swap(slots_);
  if (slots_.size() > kListed)  // filled_ has had room for as many
    for (size_t s = 0; s < slots_.size(); ++s) put_into_table(static_cast<int>(s));
  int kept = 0;
  for (int c = 0; c < count_; ++c) {
    if (!rest.stays[c]) continue;
    if (kept != c) {
      calls_[kept] = calls_[c];
      kind_of_[kept] = kind_of_[c];
    }
    for (int k = 0; k < calls_[kept].noperands; ++k)
      if (Operand& o = calls_[kept].operands[k]; o.storage) o.slot = numbers[o.slot];
    ++kept;
  }
  count_ = kept;
}

// Notes which slots lie interleaved, and which one is wanted so. Returns whether there are any.
bool PendingCalls::mark_slots(const StorageImpl* wanted) {
  if (!wanted && interleaved.empty()) return false;
  bool any = false;
  for (Slot& slot : slots_) {
    slot.wanted = slot.storage.get() == wanted;
    const Interleaving* how = slot.written ? nullptr : interleaved.find(slot.storage.get());
    slot.interleaved = how ? *how : Interleaving();
    any |= slot.wanted || slot.interleaved;
  }
  if (any) interleaved.reserve(slots_.size());
  return any;
}

// Puts storages in order that the plan cannot read interleaved.
void PendingCalls::take_interleaved(const Plan* plan) {
  if (plan && plan->takes_interleaved()) return;
  for (Slot& slot : slots_) {
    if (!slot.interleaved) continue;
    interleaved.separate(slot.storage.get());
    slot.interleaved = {};
  }
}

void PendingCalls::run(const char* reason, const std::string& asked_from, bool told, const StorageImpl* wanted) {
  if (count_ == 0) return;
  forget_lost();
  if (broken_) {
    give_up("there was no memory to find out which operations had run");
    broken_ = false;
    return;
  }
  progress_.assign(count_, Progress::Waits);
  try {
    if (!mark_slots(wanted) && count_ == 1 && !explains && calls_[0].form != Call::Form::Indexed) {
      run_one();
    } else {
      run_all(reason, asked_from);
    }
  } catch (...) {
    broken_ = true;
    keep_rest(text_of_error(), told, captured && has_begun_on_device());
    broken_ = false;
    throw;
  }
  forget();
}

// Whether a kernel for a device could not be queued. While a graph is captured, that ends the capture.
bool PendingCalls::has_begun_on_device() const {
  for (int c = 0; c < count_; ++c)
    if (progress_[c] == Progress::Begun && !calls_[c].device.is_cpu()) return true;
  return false;
}

void PendingCalls::abandon(const std::string& reason) {
  progress_.assign(count_, Progress::Waits);
  keep_rest(reason, true, true);
}

void PendingCalls::finish() {
  try {
    run("the end of the thread", {}, false);
  } catch (...) {  // whoever asks for the results is told
    give_up(text_of_error());
  }
  try {
    interleaved.separate_all();
  } catch (...) {  // there is no memory to put them in order: they are lost as well
    interleaved.lose_all(text_of_error());
  }
}

void PendingCalls::run_all(const char* reason, const std::string& asked_from) {
  if (!explains)
    if (const KnownPlan* known = plans_.find(calls_.get(), count_, slots_)) return run_known(*known);
  const Plan plan(calls_.get(), count_, kMostHalves, slots_);
  const FusedPlan fused(calls_.get(), count_, slots_, plan.needed());
  take_interleaved(&plan);
  // All memory is allocated first. Where there is none, nothing has changed, and whoever asks again gets the error
  // again.
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
  for (int c = 0; c < count_; ++c)
    if (!plan.needed()[c]) progress_[c] = Progress::Done;
  std::vector<char> alone = plan.run_alone(count_);
  const std::vector<char> alone_on_devices = fused.run_alone(calls_.get(), count_);
  for (size_t c = 0; c < alone.size(); ++c) alone[c] |= alone_on_devices[c];
  note_kinds(alone);
  run_groups(plan, calls_.get());
  counts.generated += fused.run(calls_.get(), slots_, progress_);
}

// Runs the calls by a plan that was made for calls like them.
void PendingCalls::run_known(const KnownPlan& plan) {
  take_interleaved(plan.plan());
  for (const int s : plan.stored()) slots_[s].storage->keep_promise();
  counts.flushes += 1;
  counts.calls += count_;
  counts.dead += plan.dead();
  for (int c = 0; c < count_; ++c)
    if (!plan.needed()[c]) progress_[c] = Progress::Done;
  if (plan.plan()) {
    counts.loops += static_cast<int64_t>(plan.plan()->loops());
    counts.kept_apart += plan.plan()->kept_apart();
    note_kinds(plan.run_alone());
    return run_groups(*plan.plan(), plan.calls());
  }
  counts.loops += static_cast<int64_t>(plan.fused()->groups().size());
  counts.kept_apart += plan.fused()->kept_apart();
  note_kinds(plan.run_alone());
  counts.generated += plan.fused()->run(plan.calls(), slots_, progress_);
}

void PendingCalls::run_groups(const Plan& plan, const Call* calls) {
  for (size_t g = 0; g < plan.grouping().groups().size(); ++g) {
    if (plan.runs_later(g)) continue;
    plan.note(g, Progress::Begun, progress_);
    recording::run(plan, g, calls, slots_);
    plan.note(g, Progress::Done, progress_);
    for (const int s : plan.interleaved_results(g)) slots_[s].interleaved = plan.interleaving(g);
  }
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
    return;
  }
  progress_[0] = Progress::Begun;
  if (kind_of_[0]) note_kind(kind_of_[0], true);
  recording::run_alone(call, slots_);
}

}  // namespace mica::recording
