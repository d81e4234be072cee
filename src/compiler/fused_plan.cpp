#include "compiler/fused.h"

#include <algorithm>
#include <memory>

#include "mica/backend.h"
#include "mica/core/recording.h"
#include "mica/error.h"

namespace mica::recording {

void FusedPlan::take_numbers() {
  for (MadeCall& made : made_) recording::take_numbers(made, *made.origin);
}

FusedPlan::FusedPlan(const Call* calls, int count, const std::vector<Slot>& slots, const std::vector<bool>& needed)
    : in_memory_(slots.size(), 1), uses_(slots.size()) {
  if (std::all_of(calls, calls + count, [](const Call& call) { return call.device.is_cpu(); })) return;
  // While groups are made, a result that nobody outside asks for counts as not stored: two groups rarely use one.
  for (size_t s = 0; s < slots.size(); ++s) in_memory_[s] = !is_dead(slots[s]) || !is_promised(slots[s]);
  std::vector<const Call*> listed;
  for (int c = 0; c < count; ++c)
    if (needed[c] && !calls[c].device.is_cpu()) listed.push_back(&calls[c]);
  for (const Call* call : in_halves(listed, made_)) {
    bool joined = false;
    const int last = static_cast<int>(groups_.size()) - 1;
    for (int g = last; g >= 0 && g > last - kLookBack && !joined; --g) {
      joined = groups_[g].join(*call, in_memory_);
      if (!joined && groups_[g].precedes(*call)) break;
    }
    if (joined) continue;
    groups_.emplace_back(*call);
    absorb_into_last();
  }
  absorb_loops();
  read_heads_in_place(calls, count);
  for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot) {
    const FusedGroup* last = nullptr;
    for (const FusedGroup& g : groups_)
      if (g.uses(slot)) ++uses_[slot], last = &g;
    if (uses_[slot] > 1 || (last && !last->keeps_results())) in_memory_[slot] = 1;
  }
  for (FusedGroup& g : groups_) {
    if (g.calls().size() == 1 || g.fits(in_memory_)) continue;
    g.fall_apart();
    for (size_t slot = 0; slot < slots.size(); ++slot)
      if (g.uses(static_cast<int>(slot))) in_memory_[slot] = 1;
  }
  for (size_t slot = 0; slot < slots.size(); ++slot)
    if (uses_[slot] && !in_memory_[slot]) kept_ += static_cast<int64_t>(slots[slot].storage->nbytes());
}

// Lets a norm or a product, as the last group, take in the latest call that it needs. It does not where a group between
// the two needs that call too: the call would run too late.
void FusedPlan::absorb_into_last() {
  if (absorb_written_norm()) return;
  const size_t last = groups_.size() - 1;
  for (size_t g = last; g-- > 0 && g + kLookBack > last;) {
    if (!groups_[g].precedes(groups_[last])) continue;
    for (size_t between = g + 1; between < last; ++between)
      if (groups_[g].precedes(groups_[between])) return;
    if (groups_[last].absorb(groups_[g])) groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(g));
    return;
  }
}

// A norm that is written out is four groups, since its sum stands between loops of two shapes.
bool FusedPlan::absorb_written_norm() {
  constexpr size_t kParts = 4;
  if (groups_.size() <= kParts) return false;
  const size_t first = groups_.size() - 1 - kParts;
  if (!groups_[first + 1].is_sum() || !groups_.back().absorb_written_norm(&groups_[first], kParts, in_memory_))
    return false;
  groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(first), groups_.end() - 1);
  return true;
}

// Lets products take in the loops behind them. A loop then runs earlier than where it stands, so no group between may
// have to run before it.
void FusedPlan::absorb_loops() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].is_products()) continue;
    for (size_t later = g + 1; later < groups_.size() && later < g + kLookBack; ++later) {
      const FusedGroup& loop = groups_[later];
      if (!loop.is_loop() || !groups_[g].precedes(loop)) continue;
      bool moves = true;
      for (size_t between = g + 1; between < later && moves; ++between) moves = !groups_[between].precedes(loop);
      if (!moves || !groups_[g].absorb_loop(loop, in_memory_)) continue;
      groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(later--));
    }
  }
}

// Whether the group, of products, may read its constants before the kernels before it have ended. Products let the next
// kernel begin when all before them has ended. Attention lets it begin at once: then what came before may still run.
bool FusedPlan::begins_early(size_t group) const {
  if (!groups_[group].is_products()) return false;
  for (size_t g = group; g-- > 0;) {
    if (!groups_[group].may_overlap(groups_[g])) return false;
    if (groups_[g].is_products()) return true;
    if (!groups_[g].is_attention()) return false;
  }
  return false;
}

std::string FusedPlan::describe() const {
  std::string text;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const std::vector<const Call*>& calls = groups_[i].calls();
    text += cat("  loop ", i + 1, " on ", calls[0]->device, ": ", calls.size(), " calls\n");
    for (const Call* call : calls) {
      text += cat("    ", call->name, " ", call->dtype, "[");
      const int64_t* shape = in_loop(*call) ? call->shape : call->operands[0].sizes;
      for (int d = 0; d < (in_loop(*call) ? call->ndim : call->operands[0].ndim); ++d)
        text += cat(d ? ", " : "", shape[d]);
      text += "]";
      for (int k = call->noutputs; k < call->noperands; ++k) {
        text += k == call->noutputs ? " of " : ", ";
        text += call->operands[k].storage ? cat("%", call->operands[k].slot) : std::string("a number");
      }
      const int out = call->operands[0].slot;
      text += cat(" -> %", out, in_memory_[out] ? "" : " (register)", "\n");
    }
  }
  return text;
}

// Runs the groups from `first` to before `last` as one kernel. Returns false where that is not possible: none has run
// then.
bool FusedPlan::run_sequence(size_t first, size_t last, const std::vector<Slot>& slots) const {
  const Device device = groups_[first].calls()[0]->device;
  std::vector<FusedPart> parts(last - first);
  for (size_t i = 0; i < parts.size(); ++i) {
    const FusedGroup& group = groups_[first + i];
    if (group.is_sum()) {
      parts[i] = {nullptr, group.sum(slots)};
      continue;
    }
    const FusedLoop* loop = group.write(slots, in_memory_);
    if (!loop) return false;
    parts[i] = {loop, {}};
  }
  return fusion_of(device)->run_sequence(device, parts.data(), static_cast<int>(parts.size()));
}

size_t origin(const Call* call, const Call* calls, size_t count) {
  while (call < calls || call >= calls + count) call = static_cast<const MadeCall*>(call)->origin;
  return static_cast<size_t>(call - calls);
}

std::vector<char> FusedPlan::run_alone(const Call* calls, int count) const {
  std::vector<char> found(static_cast<size_t>(count));
  for (const FusedGroup& group : groups_)
    for (const Call* call : group.calls())
      if (group.runs_one_by_one()) found[origin(call, calls, found.size())] = 1;
  return found;
}

// Notes how far calls have come when the groups before `first` have run, and those from there to before `last` have
// begun. A call may have become several.
void FusedPlan::note(size_t first, size_t last, const Call* calls, std::vector<Progress>& progress) const {
  std::vector<char> waits(progress.size());  // by call: whether a part of it has not begun
  for (size_t g = groups_.size(); g-- > 0;)
    for (const Call* call : groups_[g].calls()) {
      const size_t c = origin(call, calls, progress.size());
      if (g >= last) {
        waits[c] = 1;
      } else if (g >= first || waits[c]) {
        progress[c] = Progress::Begun;
      } else if (progress[c] == Progress::Waits) {
        progress[c] = Progress::Done;
      }
    }
}

int64_t FusedPlan::run(const Call* calls, const std::vector<Slot>& slots, std::vector<Progress>& progress) const {
  int64_t generated = 0;
  size_t g = 0, end = 0;
  try {
    while (g < groups_.size()) {
      // In a graph that is captured, neighbouring groups of few elements run as one kernel.
      const Device device = groups_[g].calls()[0]->device;
      end = g;
      if (least_fused <= 1 && fusion_of(device)->run_sequence)
        while (end < groups_.size() && end - g < kFusedParts && groups_[end].is_short() &&
               groups_[end].calls()[0]->device == device)
          ++end;
      if (end > g + 1 && run_sequence(g, end, slots)) {
        ++generated;
        g = end;
        continue;
      }
      const size_t last = end;
      do {
        end = g + 1;
        generated += groups_[g].run(slots, in_memory_, g > 0 ? &groups_[g - 1] : nullptr, begins_early(g));
      } while (++g < last);
    }
  } catch (...) {
    note(g, end, calls, progress);
    throw;
  }
  return generated;
}

}  // namespace mica::recording
