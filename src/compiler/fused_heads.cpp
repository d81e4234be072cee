// Lets attention read keys and values where they lie, instead of copies in which a program has repeated each head for
// several heads of queries (repeat_kv of transformers).
#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include "compiler/fused.h"

namespace mica::recording {

namespace {

constexpr int kBatch = 0, kHead = 1, kRow = 2, kElement = 3;  // dimensions of keys and values

// The heads that `copy` has repeated to make `operand`, as they lie where it read them. Returns nothing where the call
// does anything else.
std::optional<Operand> heads_before(const Call& copy, const Operand& operand) {
  if (copy.form != Call::Form::Loop || std::string_view(copy.name) != "copy" || copy.noperands != 2) return {};
  const Operand &to = copy.operands[0], &from = copy.operands[1];
  if (!from.storage || from.dtype != to.dtype || !same_place(to, operand) || operand.ndim != 4) return {};
  Operand found = from;
  found.ndim = 4;
  std::copy_n(operand.sizes, 4, found.sizes);
  std::fill_n(found.strides, 4, 0);
  const int64_t head = operand.strides[kHead];
  int64_t repeats = 1;
  for (int d = 0; d < copy.ndim; ++d)
    if (copy.shape[d] != 1 && to.strides[d] == head && from.strides[d] == 0) repeats = copy.shape[d];
  if (repeats == 1 || found.sizes[kHead] % repeats) return {};
  found.sizes[kHead] /= repeats;
  const int64_t strides[] = {operand.strides[kBatch], head * repeats, operand.strides[kRow], operand.strides[kElement]};
  bool seen[4] = {};
  for (int d = 0; d < copy.ndim; ++d) {
    if (copy.shape[d] == 1 || (to.strides[d] == head && copy.shape[d] == repeats)) continue;
    int of = 0;
    while (of < 4 && (seen[of] || found.sizes[of] != copy.shape[d] || strides[of] != to.strides[d])) ++of;
    if (of == 4) return {};
    seen[of] = true;
    found.strides[of] = from.strides[d];
  }
  for (int d = 0; d < 4; ++d)
    if (!seen[d] && found.sizes[d] != 1) return {};
  return found;
}

}  // namespace

// Finds the copy of heads that is an operand of attention, and what attention can read instead.
std::optional<FusedPlan::Heads> FusedPlan::heads_of(size_t attention, int operand, const Call* calls, int count) const {
  const Operand& repeated = groups_[attention].calls()[0]->operands[operand];
  if (in_memory_[repeated.slot]) return {};
  Heads found{};
  bool any = false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (g == attention || !groups_[g].uses(repeated.slot)) continue;
    if (any || g > attention || !groups_[g].is_loop()) return {};
    found.group = g, any = true;
  }
  if (!any) return {};
  for (const Call* call : groups_[found.group].calls()) {  // the copy may have been cut into halves
    const Call* whole = &calls[origin(call, calls, static_cast<size_t>(count))];
    const auto is_it = [&](const Operand& o) { return o.storage && o.slot == repeated.slot; };
    if (std::none_of(call->operands, call->operands + call->noperands, is_it)) continue;
    if (found.copy && found.copy != whole) return {};
    found.copy = whole;
  }
  const std::optional<Operand> source = found.copy ? heads_before(*found.copy, repeated) : std::nullopt;
  if (!source) return {};
  // Attention would read later than the copy does.
  for (size_t g = found.group; g < attention; ++g)
    if (groups_[g].writes(source->slot)) return {};
  found.source = *source;
  return found;
}

void FusedPlan::read_heads_in_place(const Call* calls, int count) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].is_attention()) continue;
    const std::optional<Heads> keys = heads_of(g, kKey, calls, count);
    const std::optional<Heads> values = keys ? heads_of(g, kValue, calls, count) : std::nullopt;
    if (!values || keys->source.sizes[kHead] != values->source.sizes[kHead]) continue;
    const auto only_copies = [&](size_t group) {
      return std::all_of(groups_[group].calls().begin(), groups_[group].calls().end(), [&](const Call* call) {
        const Call* whole = &calls[origin(call, calls, static_cast<size_t>(count))];
        return whole == keys->copy || whole == values->copy;
      });
    };
    if (!only_copies(keys->group) || !only_copies(values->group)) continue;
    const Call* whole = groups_[g].calls()[0];
    Call call = *whole;
    call.operands[kKey] = keys->source, call.operands[kValue] = values->source;
    if (!is_taken(call)) continue;
    FusedGroup group(made_.emplace_back(call, whole));
    std::set<size_t, std::greater<>> copies{keys->group, values->group};
    for (const size_t copy : copies) group.stands_for(groups_[copy]);
    groups_[g] = std::move(group);
    for (const size_t copy : copies) groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(copy));
    g -= copies.size();
  }
}

}  // namespace mica::recording
