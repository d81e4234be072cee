#include "compiler/groups.h"

#include <algorithm>

#include "core/recorded_convolution.h"

namespace mica::recording {

namespace {

// Elements of a piece. Pieces that are larger than a fine one must at least be enough for several threads.
constexpr int64_t kFinePiece = 8192, kLeastPieces = 8;
constexpr int64_t kLargestPiece = 128 * 1024;  // a larger one has left the cache before it is read again

}  // namespace

int64_t elements_behind(const Call& call, int operand, int lead) {
  int64_t count = 1;
  const int64_t* sizes = sizes_of(call, operand);
  for (int d = lead; d < dims_of(call, operand); ++d) count *= sizes[d];
  return count;
}

int64_t elements_behind(const Call& call, int lead) {
  if (is_pointwise(call)) return elements_behind(call, 0, lead);
  int64_t most = 1;
  for (int k = 0; k < call.noperands; ++k) most = std::max(most, elements_behind(call, k, lead));
  return most;
}

Grouping::Grouping(const Call* calls, int count, int slots, const std::vector<bool>& needed)
    : calls_(calls), slots_(slots) {
  for (int c = 0; c < count; ++c) {
    if (!needed[c] || !calls_[c].device.is_cpu()) continue;
    bool joined = false;
    const char* apart = "nothing before it computes what it reads";
    const int last = static_cast<int>(groups_.size()) - 1;
    for (int g = last; g >= 0 && g > last - kLookBack; --g) {
      if (join(g, c)) {
        joined = true;
        break;
      }
      if (!conflicts(g, calls_[c])) continue;
      apart = refusal_;  // the call has to run after this group, so that it can join none before it
      break;
    }
    if (joined) continue;
    open(c);
    groups_.back().apart = apart;
  }
}

bool Grouping::conflicts(int group, const Call& call) const {
  const Uses& uses = uses_[group];
  for (int k = 0; k < call.noperands; ++k) {
    const Operand& o = call.operands[k];
    if (!o.storage) continue;
    if (uses.writes[o.slot] || (k < call.noutputs && uses.reads[o.slot])) return true;
  }
  return false;
}

int Grouping::fit(const Call& call, int operand, const Partition& partition, int lead) const {
  const Operand& o = call.operands[operand];
  const int64_t* sizes = sizes_of(call, operand);
  const int ndim = dims_of(call, operand);
  for (int d = 0; d < lead; ++d)
    if (sizes[d] != 1 && o.strides[d] != partition.steps[d]) lead = d;
  for (; lead > 0; --lead) {
    int64_t low = o.offset - partition.begin, high = low + element_size(o.dtype);
    for (int d = lead; d < ndim; ++d) {
      if (o.strides[d] < 0) return 0;
      high += (sizes[d] - 1) * o.strides[d];
    }
    if (low >= 0 && high <= partition.steps[lead - 1]) break;
  }
  return lead;
}

int Grouping::lay_out(const Call& call, int operand, int lead, Partition& partition) const {
  const Operand& o = call.operands[operand];
  const int64_t* sizes = sizes_of(call, operand);
  partition.begin = o.offset;
  int64_t within = element_size(o.dtype);  // the bytes that one index of the dimension takes
  for (int d = dims_of(call, operand) - 1; d >= 0; --d) {
    const int64_t step = sizes[d] == 1 ? within : o.strides[d];
    if (step < within) lead = std::min(lead, d);  // indices of this dimension overlap
    partition.steps[d] = step;
    within = step * sizes[d];
  }
  return lead;
}

bool Grouping::join(int group, int c) {
  const Call& call = calls_[c];
  Group& g = groups_[group];
  Uses& uses = uses_[group];
  if (is_convolution(calls_[g.calls[0]])) return refuse("a convolution is computed as a whole");
  int lead = std::min<int>(g.lead, call.ndim);
  for (int d = 0; d < lead; ++d)
    if (call.shape[d] != g.extents[d]) lead = d;
  if (lead == 0) return refuse("its shape begins with another size");

  Partition fresh[kOperands];
  for (int k = 0; k < call.noutputs && lead > 0; ++k) {
    const int slot = call.operands[k].slot;
    if (uses.writes[slot]) {
      lead = fit(call, k, uses.partitions[slot], lead);
      continue;
    }
    lead = lay_out(call, k, lead, fresh[k]);
    if (!uses.reads[slot]) continue;
    // Earlier calls of the group read what this one writes over. That is right only where each reads its own piece.
    for (const int earlier : g.calls)
      for (int i = calls_[earlier].noutputs; i < calls_[earlier].noperands && lead > 0; ++i)
        if (calls_[earlier].operands[i].storage && calls_[earlier].operands[i].slot == slot)
          lead = fit(calls_[earlier], i, fresh[k], lead);
  }
  for (int k = call.noutputs; k < call.noperands && lead > 0; ++k) {
    if (!call.operands[k].storage) continue;
    const int slot = call.operands[k].slot;
    if (uses.writes[slot]) lead = fit(call, k, uses.partitions[slot], lead);
    for (int out = 0; out < call.noutputs; ++out)
      if (call.operands[out].slot == slot && !uses.writes[slot]) lead = fit(call, k, fresh[out], lead);
  }
  if (lead == 0) return refuse("it needs other pieces of what the loop before it computes than it computes itself");
  // Pieces that are too large for a cache would be read from memory again, as without a group.
  int64_t most = elements_behind(call, lead);
  if (lead < g.lead)
    for (const int member : g.calls) most = std::max(most, elements_behind(calls_[member], lead));
  if (most > kLargestPiece) return refuse("pieces that both can be cut into are too large for a cache");
  if (lead < g.lead && most > kFinePiece) {
    int64_t pieces = 1;
    for (int d = 0; d < lead; ++d) pieces *= g.extents[d];
    if (pieces < kLeastPieces) return refuse("both can be cut into few pieces only, too few for the threads");
  }

  g.lead = lead;
  for (int k = 0; k < call.noutputs; ++k)
    if (!uses.writes[call.operands[k].slot]) uses.partitions[call.operands[k].slot] = fresh[k];
  note(group, c);
  return true;
}

void Grouping::open(int c) {
  const Call& call = calls_[c];
  Group g;
  g.lead = call.ndim;
  std::copy(call.shape, call.shape + call.ndim, g.extents);
  Uses uses{std::vector<char>(slots_), std::vector<char>(slots_), std::vector<Partition>(slots_)};
  for (int k = 0; k < call.noutputs; ++k) g.lead = lay_out(call, k, g.lead, uses.partitions[call.operands[k].slot]);
  for (int k = call.noutputs; k < call.noperands; ++k)
    for (int out = 0; out < call.noutputs; ++out)
      if (call.operands[k].storage && call.operands[k].slot == call.operands[out].slot)
        g.lead = fit(call, k, uses.partitions[call.operands[out].slot], g.lead);
  groups_.push_back(std::move(g));
  uses_.push_back(std::move(uses));
  note(static_cast<int>(groups_.size()) - 1, c);
}

void Grouping::note(int group, int c) {
  const Call& call = calls_[c];
  groups_[group].calls.push_back(c);
  for (int k = 0; k < call.noperands; ++k)
    if (call.operands[k].storage)
      (k < call.noutputs ? uses_[group].writes : uses_[group].reads)[call.operands[k].slot] = 1;
}

}  // namespace mica::recording
