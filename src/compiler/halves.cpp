// Cuts calls on the CPU into halves of rows. A rotation of positions reads rows in halves. A call that computes such
// rows can be one segment with the calls that read them if it is computed in halves too.
#include <algorithm>

#include "compiler/segments.h"

namespace mica::recording {

namespace {

constexpr int64_t kLeastHalf = 16;  // elements; the ends of shorter rows cost more than is saved

bool has_rows(const Call& call) { return is_pointwise(call) && call.ndim > 0; }

// Whether `call` reads one half of the rows that `writer` writes, as its operand `o`.
bool is_half(const Call& writer, const Call& call, const Operand& o) {
  const Operand& whole = writer.operands[0];
  const int inner = writer.ndim - 1;
  const int64_t half = writer.shape[inner] / 2, distance = o.offset - whole.offset;
  if (!has_rows(call) || !is_simple(call) || call.ndim != writer.ndim || call.shape[inner] != half) return false;
  if (o.dtype != whole.dtype || (distance != 0 && distance != half * whole.strides[inner])) return false;
  for (int d = 0; d < writer.ndim; ++d)
    if ((d < inner && call.shape[d] != writer.shape[d]) || (call.shape[d] != 1 && o.strides[d] != whole.strides[d]))
      return false;
  return true;
}

// The call for the first or the second half of its rows.
void make_half(Call& half, const Call& call, bool second) {
  half = call;
  const int inner = call.ndim - 1;
  half.shape[inner] = call.shape[inner] / 2;
  for (int k = 0; second && k < call.noperands; ++k)
    if (Operand& o = half.operands[k]; o.storage) o.offset += half.shape[inner] * o.strides[inner];
}

}  // namespace

std::vector<int> split_into_halves(const std::vector<int>& members, Call* calls, int& used, int capacity,
                                   const std::vector<char>& in_memory) {
  constexpr int64_t kNone = 0, kVarious = -1;
  std::vector<int64_t> rows(in_memory.size(), kNone);  // by slot: the length of the rows in which later calls read it
  std::vector<int> writers(in_memory.size());
  for (const int c : members)
    for (int k = 0; k < calls[c].noutputs; ++k) ++writers[calls[c].operands[k].slot];
  std::vector<int> order;  // the last one first
  for (auto c = members.rbegin(); c != members.rend(); ++c) {
    const Call& call = calls[*c];
    const int slot = call.operands[0].slot, inner = call.ndim - 1;
    bool splits = has_rows(call) && is_simple(call) && call.noutputs == 1 && !in_memory[slot] && writers[slot] == 1 &&
                  rows[slot] >= kLeastHalf && rows[slot] * 2 == call.shape[inner] && used + 2 <= capacity;
    for (const int other : order)
      for (int k = 0; splits && k < calls[other].noperands; ++k)
        if (const Operand& o = calls[other].operands[k]; o.storage && o.slot == slot)
          splits = is_half(call, calls[other], o);
    for (int k = call.noutputs; k < call.noperands; ++k)
      if (call.operands[k].storage && call.operands[k].slot == slot) splits = false;
    if (splits) {
      make_half(calls[used], call, true);
      make_half(calls[used + 1], call, false);
      order.push_back(used);
      order.push_back(used + 1);
      used += 2;
    } else {
      order.push_back(*c);
    }
    for (int k = call.noutputs; k < call.noperands; ++k) {
      if (!call.operands[k].storage) continue;
      const int64_t row = !has_rows(call) ? kVarious : splits ? call.shape[inner] / 2 : call.shape[inner];
      int64_t& known = rows[call.operands[k].slot];
      known = known == kNone || known == row ? row : kVarious;
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace mica::recording
