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
      if (!e->takes_images(s)) continue;
      if (grouping_.writes(static_cast<int>(g), s) || s == result) {
        write(g, s);
      } else {
        needed[s] = 1;
      }
    }
  }
  for (size_t g = 0; g < groups; ++g) {
    const Call& call = calls[grouping_.groups()[g].calls[0]];
    if (grouping_.groups()[g].calls.size() != 1 || !is_convolution(call) || epilogues_[g] || runs_later_[g]) continue;
    const int result = call.operands[0].slot;
    if (!needed[result] && !slots[result].wanted) continue;
    if (!computes_interleaved(call)) return false;
    if (slots[call.operands[1].slot].interleaved && !takes_interleaved_source(call, slots)) return false;
    interleavings_[g] = interleaving_of(call.operands[0]);
    write(g, result);
  }
  for (size_t s = 0; s < slots.size(); ++s) {
    if (needed[s] && !lies[s]) return false;
    for (size_t g = 0; g < groups && lies[s]; ++g)
      if (!uses_interleaved(g, static_cast<int>(s), calls)) return false;
  }
  // A plan without such images may be kept for calls whose storages lie otherwise.
  return std::any_of(interleavings_.begin(), interleavings_.end(), [](const Interleaving& how) { return !!how; }) ||
         std::any_of(epilogues_.begin(), epilogues_.end(), [](const auto& e) { return e && e->source_interleaved(); });
}

static bool is_source_or_result(const Call& convolution, int slot) {
  return slot == convolution.operands[0].slot || slot == convolution.operands[1].slot;
}

// Whether the group takes a slot as it lies interleaved, or does not use it.
bool Plan::uses_interleaved(size_t group, int slot, const Call* calls) const {
  const int g = static_cast<int>(group);
  if (!grouping_.reads(g, slot) && !grouping_.writes(g, slot)) return true;
  if (const Epilogue* e = epilogues_[group].get()) return e->interleaving() && e->takes_images(slot);
  const int index = grouping_.groups()[group].calls[0];
  const Call& call = calls[index];
  if (!runs_later_[group]) return static_cast<bool>(interleavings_[group]) && is_source_or_result(call, slot);
  return std::any_of(epilogues_.begin(), epilogues_.end(), [&](const auto& e) {
    if (!e) return false;
    if (e->product() == index) return e->source_interleaved();  // it has looked at the product's operands
    if (e->convolution() != index || !is_source_or_result(call, slot)) return false;
    return slot == call.operands[0].slot ? static_cast<bool>(e->interleaving()) : e->source_interleaved();
  });
}

// Whether what the convolution reads lies interleaved as it has to.
bool Plan::takes_interleaved_source(const Call& convolution, const std::vector<Slot>& slots) {
  const Operand& source = convolution.operands[1];
  const Interleaving& how = slots[source.slot].interleaved;
  return how && how == interleaving_of(source);
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
