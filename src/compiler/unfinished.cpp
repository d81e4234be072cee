#include "compiler/unfinished.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>

#include "mica/core/fork.h"
#include "mica/error.h"

namespace mica::recording {

namespace {

bool writes(const Call& call, int slot) {
  for (int k = 0; k < call.noutputs; ++k)
    if (call.operands[k].slot == slot) return true;
  return false;
}

bool reads(const Call& call, int slot) {
  for (int k = call.noutputs; k < call.noperands; ++k)
    if (call.operands[k].storage && call.operands[k].slot == slot) return true;
  return false;
}

// Whether the calls give the same when they run once more: what they write they do not read, or it was their own from
// the start.
bool can_run_again(const std::vector<const Call*>& begun, const std::vector<Slot>& slots) {
  for (const Call* call : begun)
    for (int k = 0; k < call->noutputs; ++k) {
      const int slot = call->operands[k].slot;
      if (!is_promised(slots[slot]) &&
          std::any_of(begun.begin(), begun.end(), [slot](const Call* each) { return reads(*each, slot); }))
        return false;
    }
  return true;
}

}  // namespace

Unfinished sort_out(const Call* calls, const std::vector<Progress>& progress, std::vector<Slot>& slots, bool told,
                    bool capture_failed) {
  const size_t count = progress.size();
  Unfinished result{std::vector<char>(count, 1), std::vector<char>(slots.size())};
  std::vector<const Call*> begun;
  for (size_t c = 0; c < count; ++c) {
    if (progress[c] == Progress::Begun) begun.push_back(&calls[c]);
    if (progress[c] != Progress::Done) continue;
    result.stays[c] = 0;
    for (int k = 0; k < calls[c].noutputs; ++k) slots[calls[c].operands[k].slot].promised = false;
  }
  if (capture_failed) {
    for (size_t c = 0; c < count; ++c) {
      if (progress[c] == Progress::Done) continue;
      result.stays[c] = 0;
      for (int k = 0; k < calls[c].noutputs; ++k)
        result.lost[calls[c].operands[k].slot] |= is_promised(slots[calls[c].operands[k].slot]);
    }
    return result;
  }
  if (can_run_again(begun, slots)) return result;

  // A single call ran as it would have without a recording: what its kernel leaves behind is the kernel's word.
  const bool in_pieces = begun.size() > 1;
  std::vector<char> missed(slots.size());  // a call that should have written it does not run
  for (size_t c = 0; c < count; ++c) {
    if (progress[c] == Progress::Done) continue;
    bool runs = progress[c] == Progress::Waits;
    for (size_t s = 0; s < slots.size() && runs; ++s)
      runs = !missed[s] || !(reads(calls[c], static_cast<int>(s)) || writes(calls[c], static_cast<int>(s)));
    if (runs) continue;
    result.stays[c] = 0;
    for (int k = 0; k < calls[c].noutputs; ++k) {
      const int slot = calls[c].operands[k].slot;
      missed[slot] = 1;
      result.lost[slot] |= !told || is_promised(slots[slot]) || (progress[c] == Progress::Begun && in_pieces);
    }
  }
  return result;
}

namespace {

struct Lost {
  Storage storage;
  std::string reason;
};
std::mutex lost_mutex;
HeldOverFork lost_held(lost_mutex, LockOrder::Plans);
std::vector<Lost>& lost() {
  static auto* all = new std::vector<Lost>;
  return *all;
}
std::atomic<bool> any_lost{false};

}  // namespace

void lose(const Storage& storage, const std::string& reason) {
  const std::lock_guard lock(lost_mutex);
  lost().push_back({storage, reason});
  any_lost.store(true, std::memory_order_release);
}

void refuse_lost(const StorageImpl& storage) {
  if (!any_lost.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(lost_mutex);
  for (const Lost& each : lost())
    MICA_CHECK(each.storage.get() != &storage,
               "the values of this tensor were never computed: an operation of a compiled function failed that they "
               "depend on (",
               each.reason, "); compute the tensor anew");
}

void forget_lost() {
  if (!any_lost.load(std::memory_order_acquire)) return;
  std::vector<Lost> gone;  // their memory is freed after the lock is given back
  const std::lock_guard lock(lost_mutex);
  const auto known = std::stable_partition(lost().begin(), lost().end(),
                                           [](const Lost& each) { return each.storage->use_count() > 1; });
  gone.assign(std::make_move_iterator(known), std::make_move_iterator(lost().end()));
  lost().erase(known, lost().end());
  any_lost.store(!lost().empty(), std::memory_order_release);
}

}  // namespace mica::recording
