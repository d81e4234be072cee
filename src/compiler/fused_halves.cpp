// Cuts calls on a GPU into halves of rows. A rotation of positions, cat((-b, a), -1) * sine, writes rows in halves. A
// call that reads them can be one loop with the calls that wrote them if it is computed in halves too.
#include <algorithm>

#include "compiler/fused.h"

namespace mica::recording {

namespace {

// A storage whose rows two calls have written, one half after the other.
struct Cut {
  int slot;
  int64_t begin, extent, stride;  // the first half's offset, the elements of a half, the bytes between two of them
};

int64_t row_extent(const Call& call) { return call.shape[call.ndim - 1]; }
int64_t row_stride(const Call& call, int k) { return call.operands[k].strides[call.ndim - 1]; }

// Whether `second` writes the half of each row that lies right behind the half that `first` writes.
bool continues(const Call& first, const Call& second) {
  const Operand &a = first.operands[0], &b = second.operands[0];
  if (a.slot != b.slot || a.dtype != b.dtype || first.ndim != second.ndim || first.ndim == 0) return false;
  for (int d = 0; d < first.ndim; ++d)
    if (first.shape[d] != second.shape[d] || a.strides[d] != b.strides[d]) return false;
  return b.offset - a.offset == row_extent(first) * row_stride(first, 0) && row_stride(first, 0) > 0;
}

bool reads_whole(const Call& call, const Cut& cut) {
  for (int k = call.noutputs; k < call.noperands; ++k) {
    const Operand& o = call.operands[k];
    if (o.storage && o.slot == cut.slot && o.offset == cut.begin && row_stride(call, k) == cut.stride &&
        row_extent(call) == 2 * cut.extent)
      return true;
  }
  return false;
}

Call half_of(const Call& call, int which) {
  Call half = call;
  half.shape[call.ndim - 1] /= 2;
  for (int k = 0; k < call.noperands; ++k)
    if (call.operands[k].storage) half.operands[k].offset += which * row_extent(half) * row_stride(call, k);
  return half;
}

// The call without its dimensions of one element. These say nothing, and calls that could be one loop may have them in
// different places.
const Call* squeezed(const Call* call, std::deque<MadeCall>& made) {
  if (!in_loop(*call) || std::count(call->shape, call->shape + call->ndim, 1) == 0) return call;
  Call& c = made.emplace_back(*call);
  c.ndim = 0;
  for (int d = 0; d < call->ndim; ++d) {
    if (call->shape[d] == 1) continue;
    for (int k = 0; k < c.noperands; ++k) c.operands[k].strides[c.ndim] = call->operands[k].strides[d];
    c.shape[c.ndim++] = call->shape[d];
  }
  for (int k = 0; k < c.noperands; ++k) c.operands[k].ndim = c.ndim;
  return &c;
}

// Cuts the calls that read what was written in halves. They then write in halves themselves.
std::vector<const Call*> cut_readers(const std::vector<const Call*>& calls, std::deque<MadeCall>& made) {
  std::vector<const Call*> result;
  std::vector<Cut> cuts;
  for (const Call* call : calls) {
    const bool cut = in_loop(*call) && call->ndim > 0 &&
                     std::any_of(cuts.begin(), cuts.end(), [&](const Cut& c) { return reads_whole(*call, c); });
    if (cut) {
      for (int which : {0, 1}) result.push_back(&made.emplace_back(half_of(*call, which), call));
    } else {
      result.push_back(call);
    }
    const Call& last = *result.back();
    if (!in_loop(last) || last.noutputs != 1) continue;
    std::erase_if(cuts, [&](const Cut& c) { return c.slot == last.operands[0].slot; });  // it is written anew
    for (const Call* first : result)
      if (in_loop(*first) && first != &last && continues(*first, last))
        cuts.push_back({last.operands[0].slot, first->operands[0].offset, row_extent(last), row_stride(last, 0)});
  }
  return result;
}

// Whether later calls use what call i writes, and all of them in halves.
bool is_used_in_halves(const std::vector<const Call*>& calls, size_t i) {
  const Call& call = *calls[i];
  const Operand& written = call.operands[0];
  if (!in_loop(call) || call.noutputs != 1 || call.ndim == 0 || row_extent(call) % 2) return false;
  const int64_t half = row_extent(call) / 2 * row_stride(call, 0);
  bool any = false;
  for (size_t j = i + 1; j < calls.size(); ++j)
    for (int k = 0; k < calls[j]->noperands; ++k) {
      const Call& later = *calls[j];
      const Operand& o = later.operands[k];
      if (!o.storage || o.slot != written.slot) continue;
      any = true;
      if (!in_loop(later) || later.ndim != call.ndim || row_extent(later) * 2 != row_extent(call) ||
          row_stride(later, k) != row_stride(call, 0) ||
          (o.offset != written.offset && o.offset != written.offset + half))
        return false;
    }
  return any;
}

// Cuts the calls whose results are read in halves. Later calls are cut first, because they may be the ones that read.
std::vector<const Call*> cut_writers(std::vector<const Call*> calls, std::deque<MadeCall>& made) {
  for (size_t i = calls.size(); i-- > 0;) {
    if (!is_used_in_halves(calls, i)) continue;
    const Call& whole = *calls[i];
    calls[i] = &made.emplace_back(half_of(whole, 0), &whole);
    calls.insert(calls.begin() + static_cast<int64_t>(i) + 1, &made.emplace_back(half_of(whole, 1), &whole));
  }
  return calls;
}

}  // namespace

std::vector<const Call*> in_halves(const std::vector<const Call*>& calls, std::deque<MadeCall>& made) {
  std::vector<const Call*> result;
  for (const Call* call : calls) result.push_back(squeezed(call, made));
  return cut_writers(cut_readers(result, made), made);
}

}  // namespace mica::recording
