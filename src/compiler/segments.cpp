#include "compiler/segments.h"

#include <algorithm>

#include "compiler/segment_builder.h"

namespace mica::recording {

std::vector<int> schedule(const std::vector<int>& members, const Call* calls, int slots) {
  // A set is calls that shall be neighbours. Calls are visited from the last to the first; each joins the latest set
  // that it can be moved to.
  struct Set {
    std::vector<int> calls;  // the last one first
    std::vector<bool> reads, writes;
    bool simple;
  };
  constexpr size_t kAhead = 16;                              // the sets that a call is moved over, at most
  std::vector<Set> sets;                                     // the last one first
  const auto uses = [&](const Set& set, const Call& call) {  // whether the call has to come before the set
    for (int k = 0; k < call.noperands; ++k) {
      const Operand& o = call.operands[k];
      if (o.storage && (set.writes[o.slot] || (k < call.noutputs && set.reads[o.slot]))) return true;
    }
    return false;
  };
  for (auto c = members.rbegin(); c != members.rend(); ++c) {
    const Call& call = calls[*c];
    const bool simple = is_simple(call);
    Set* chosen = nullptr;
    for (size_t i = 0; simple && i < std::min(sets.size(), kAhead); ++i) {
      Set& set = sets[sets.size() - 1 - i];
      const Call& other = calls[set.calls[0]];
      if (set.simple && other.ndim == call.ndim && std::equal(call.shape, call.shape + call.ndim, other.shape))
        chosen = &set;
      if (uses(set, call)) break;
    }
    if (!chosen) {
      sets.push_back({{}, std::vector<bool>(slots), std::vector<bool>(slots), simple});
      chosen = &sets.back();
    }
    chosen->calls.push_back(*c);
    for (int k = 0; k < call.noperands; ++k)
      if (call.operands[k].storage) (k < call.noutputs ? chosen->writes : chosen->reads)[call.operands[k].slot] = true;
  }
  std::vector<int> order;
  for (auto set = sets.rbegin(); set != sets.rend(); ++set)
    order.insert(order.end(), set->calls.rbegin(), set->calls.rend());
  return order;
}

std::vector<Unit> make_units(const std::vector<int>& order, const Call* calls, const PieceShape& piece,
                             const std::vector<char>& in_memory, std::vector<Segment>& segments,
                             std::vector<char>& in_registers, int least) {
  const int count = static_cast<int>(order.size());
  std::vector<int> earliest(in_memory.size(), count), last(in_memory.size(), -1);
  for (int i = 0; i < count; ++i)
    for (int k = 0; k < calls[order[i]].noperands; ++k)
      if (const Operand& o = calls[order[i]].operands[k]; o.storage)
        earliest[o.slot] = std::min(earliest[o.slot], i), last[o.slot] = i;
  std::vector<Unit> units;
  for (int first = 0, most = count; first < count;) {
    SegmentBuilder builder(piece, in_memory);
    int end = first;
    while (end < count && end - first < most && builder.add(calls[order[end]])) ++end;
    if (end > first && end < count && end - first < most && builder.add_sum(calls[order[end]])) ++end;
    const auto needed = [&](int slot) { return in_memory[slot] || last[slot] >= end; };
    Segment segment;
    if (end - first >= least && builder.finish(segment, needed, end - first == count)) {
      builder.each_written([&](int slot) { in_registers[slot] = earliest[slot] >= first && !needed(slot); });
      segments.push_back(segment);
      units.push_back({first, end - first, static_cast<int>(segments.size()) - 1});
    } else if (end - first > 2) {
      most = (end - first) / 2;  // these calls need more registers or streams than there are: fewer may fit
      continue;
    } else {
      end = first + 1;
      units.push_back({first, 1});
    }
    first = end;
    most = count;
  }
  return units;
}

}  // namespace mica::recording
