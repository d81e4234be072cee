// What of a plan has to do with images that lie interleaved (core/interleaved.h): which convolutions, with what follows
// them, write such images, and whether all that reads them can.
#include <algorithm>

#include "compiler/epilogue.h"
#include "compiler/plan.h"
#include "core/recorded_convolution.h"

namespace mica::recording {

// Returns whether it has found the epilogues. If not, nothing lies interleaved while the plan runs.
bool Plan::interleave(const Call* calls, const std::vector<Slot>& slots, const std::vector<int>& users) {
  if (std::none_of(slots.begin(), slots.end(), [](const Slot& s) { return s.wanted || s.interleaved; })) return false;
  const std::vector<char> in_memory = in_memory_;
  const int64_t kept = kept_;
  takes_interleaved_ = try_to_interleave(calls, slots, users);
  if (takes_interleaved_) return true;
  in_memory_ = in_memory;
  kept_ = kept;
  std::fill(interleavings_.begin(), interleavings_.end(), Interleaving());
  for (auto& results : interleaved_results_) results.clear();
  return false;
}

bool Plan::try_to_interleave(const Call* calls, const std::vector<Slot>& slots, const std::vector<int>& users) {
  find_epilogues(calls, slots, users, true);
  const size_t groups = grouping_.groups().size();
  std::vector<Interleaving> lies(slots.size());  // how the slots lie, before and after the plan has run
  for (size_t s = 0; s < slots.size(); ++s) lies[s] = slots[s].interleaved;
  std::vector<char> needed(slots.size());  // whether something relies on it that a slot lies interleaved
  const auto write = [&](size_t group, int slot) {
    lies[slot] = interleavings_[group];
    if (in_memory_[slot]) interleaved_results_[group].push_back(slot);
  };
  for (size_t g = 0; g < groups; ++g) {
    const Epilogue* e = epilogues_[g].get();
    if (!e || !e->interleaving()) continue;
    interleavings_[g] = e->interleaving();
    const int result = calls[e->convolution()].operands[0].slot;
    for (int s = 0; s < static_cast<int>(slots.size()); ++s) {
      if (grouping_.writes(static_cast<int>(g), s) || s == result) {
        write(g, s);
      } else if (e->takes_images(s)) {
        needed[s] = 1;
      }
    }
  }
  for (size_t g = 0; g < groups; ++g) {
    const Call& call = calls[grouping_.groups()[g].calls[0]];
    if (grouping_.groups()[g].calls.size() != 1 || !is_convolution(call) || epilogues_[g] || runs_later_[g]) continue;
    const int result = call.operands[0].slot;
    const Interleaving& source = slots[call.operands[1].slot].interleaved;
    if (!needed[result] && !slots[result].wanted) continue;
    if (!computes_interleaved(call) || (source && source != interleaving_of(call.operands[1]))) return false;
    interleavings_[g] = interleaving_of(call.operands[0]);
    write(g, result);
  }
  for (size_t s = 0; s < slots.size(); ++s) {
    if (needed[s] && !lies[s]) return false;
    for (size_t g = 0; g < groups && lies[s]; ++g)
      if (!uses_interleaved(g, static_cast<int>(s), calls)) return false;
  }
  return true;
}

// Whether the group takes a slot as it lies interleaved, or does not use it.
bool Plan::uses_interleaved(size_t group, int slot, const Call* calls) const {
  const int g = static_cast<int>(group);
  if (!grouping_.reads(g, slot) && !grouping_.writes(g, slot)) return true;
  if (const Epilogue* e = epilogues_[group].get())
    return e->interleaving() && (e->takes_images(slot) || slot == calls[e->convolution()].operands[0].slot);
  const Call& call = calls[grouping_.groups()[group].calls[0]];
  if (!is_convolution(call)) return false;
  if (slot != call.operands[0].slot && slot != call.operands[1].slot) return false;
  if (!runs_later_[group]) return static_cast<bool>(interleavings_[group]);
  return std::any_of(epilogues_.begin(), epilogues_.end(), [&](const auto& e) {
    return e && e->interleaving() && e->convolution() == grouping_.groups()[group].calls[0];
  });
}

ConvolutionViews::ConvolutionViews(const Call& call, const std::vector<Slot>& slots, bool source_interleaved,
                                   bool result_interleaved) {
  for (int k = 0; k < call.noperands; ++k) {
    const Operand& o = call.operands[k];
    TensorView& v = views[k];
    v.ndim = o.ndim;
    v.numel = 1;
    for (int d = 0; d < o.ndim; ++d) {
      strides[k][d] = o.strides[d] / element_size(o.dtype);
      v.numel *= o.sizes[d];
    }
    if (k == 0 ? result_interleaved : k == 1 && source_interleaved) {
      strides[k][1] = 1;
      strides[k][3] = o.sizes[1];
      strides[k][2] = o.sizes[1] * o.sizes[3];
    }
    v.sizes = o.sizes;
    v.strides = strides[k];
    v.dtype = o.dtype;
    v.device = call.device;
    v.data = static_cast<char*>(slots[o.slot].storage->address()) + o.offset;
  }
}

}  // namespace mica::recording
