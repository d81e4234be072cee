#include "compiler/plan.h"

#include <algorithm>
#include <cstring>

#include "compiler/epilogue.h"
#include "core/recorded_convolution.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::recording {

namespace {

// The elements of a piece. A handful of float32 buffers of that size stay in the nearest caches, and the call of a
// kernel is short beside its work on them.
constexpr int64_t kPiece = 4096, kLeastPiece = 1024;
constexpr int64_t kPiecesPerThread = 4;
constexpr int64_t kSmallShare =
    8192;  // the share of a thread that is one piece: cutting it would cost more than it gains
constexpr size_t kLine = 64;

}  // namespace

// A call is needed if somebody outside can ask for one of its results or a needed call reads it.
std::vector<bool> Plan::find_needed(const Call* calls, int count, const std::vector<Slot>& slots) {
  std::vector<bool> wanted(slots.size()), needed(count);
  for (size_t s = 0; s < slots.size(); ++s) wanted[s] = !is_dead(slots[s]) || !is_promised(slots[s]);
  for (int c = count - 1; c >= 0; --c) {
    bool any = false;
    for (int k = 0; k < calls[c].noutputs; ++k) any |= wanted[calls[c].operands[k].slot];
    needed[c] = any;
    for (int k = calls[c].noutputs; k < calls[c].noperands && any; ++k)
      if (calls[c].operands[k].storage) wanted[calls[c].operands[k].slot] = true;
  }
  return needed;
}

void take_numbers(Call& to, const Call& from) {
  std::memcpy(to.arguments, from.arguments, sizeof to.arguments);
  if (to.form != Call::Form::Loop) return;
  take_numbers_of_step(to, from);
  for (int k = to.noutputs; k < to.noperands; ++k)
    if (!to.operands[k].storage) std::memcpy(to.operands[k].number, from.operands[k].number, sizeof(Operand::number));
}

Plan::Plan(Call* calls, int count, int spare, const std::vector<Slot>& slots)
    : needed_(find_needed(calls, count, slots)),
      grouping_(calls, count, static_cast<int>(slots.size()), needed_),
      in_memory_(slots.size(), 1),
      last_use_(slots.size(), -1) {
  dead_ = static_cast<int>(std::count(needed_.begin(), needed_.end(), false));
  const size_t groups = grouping_.groups().size();
  std::vector<int> users(slots.size());
  for (size_t g = 0; g < groups; ++g)
    for (size_t s = 0; s < slots.size(); ++s)
      if (grouping_.reads(static_cast<int>(g), static_cast<int>(s)) ||
          grouping_.writes(static_cast<int>(g), static_cast<int>(s)))
        last_use_[s] = static_cast<int>(g), ++users[s];
  for (size_t s = 0; s < slots.size(); ++s) {
    if (!is_dead(slots[s]) || !is_promised(slots[s])) continue;
    in_memory_[s] = users[s] > 1;
    if (users[s] == 1 && grouping_.groups()[last_use_[s]].calls.size() == 1) in_memory_[s] = 1;
    if (!in_memory_[s] && users[s] == 1) kept_ += static_cast<int64_t>(slots[s].storage->nbytes());
  }
  interleavings_.resize(groups);
  interleaved_results_.resize(groups);
  if (!interleave(calls, slots, users)) find_epilogues(calls, slots, users, false);
  plans_.resize(groups);
  int used = count;
  for (size_t g = 0; g < groups; ++g) {
    if (epilogues_[g]) continue;
    cut(g, calls);
    if (grouping_.groups()[g].calls.size() == 1) continue;
    std::vector<char> in_registers(slots.size());
    const std::vector<int> members =
        split_into_halves(grouping_.groups()[g].calls, calls, used, count + spare, in_memory_);
    made_halves_ |= used > count;
    plans_[g].order = schedule(members, calls, static_cast<int>(slots.size()));
    plans_[g].units = make_units(plans_[g].order, calls, {plans_[g].cut, plans_[g].range}, in_memory_,
                                 plans_[g].segments, in_registers);
    give_buffers(g, calls, in_registers);
  }
}

Plan::~Plan() = default;

std::vector<char> Plan::run_alone(int count) const {
  std::vector<char> found(static_cast<size_t>(count));
  for (size_t g = 0; g < plans_.size(); ++g) {
    const std::vector<int>& calls = grouping_.groups()[g].calls;
    if (calls.size() == 1 && calls[0] < count && !epilogues_[g] && !runs_later_[g])
      found[static_cast<size_t>(calls[0])] = 1;
  }
  return found;
}

size_t Plan::loops() const {
  return plans_.size() - static_cast<size_t>(std::count(runs_later_.begin(), runs_later_.end(), 1));
}

void Plan::take_numbers_of_epilogues(const Call* calls) {
  for (size_t g = 0; g < epilogues_.size(); ++g)
    if (epilogues_[g]) epilogues_[g]->take_numbers(grouping_.groups()[g].calls, calls);
}

size_t Plan::bytes_of_epilogues() const {
  size_t sum = 0;
  for (const auto& each : epilogues_) sum += each ? each->bytes() : 0;
  return sum;
}

void Plan::note(size_t group, Progress reached, std::vector<Progress>& progress) const {
  for (const int c : grouping_.groups()[group].calls) progress[c] = reached;
  if (const Epilogue* e = epilogue(group)) {
    progress[e->convolution()] = reached;
    if (e->product() >= 0) progress[e->product()] = reached;
  }
}

// A convolution runs as a part of the first group that reads its result, if no group between the two writes what the
// convolution reads. Where a group reads several convolutions, it runs with the last of them.
void Plan::find_epilogues(const Call* calls, const std::vector<Slot>& slots, const std::vector<int>& users,
                          bool interleaves) {
  const auto& groups = grouping_.groups();
  epilogues_.clear();
  epilogues_.resize(groups.size());
  runs_later_.assign(groups.size(), 0);
  std::vector<char> wanted(slots.size());  // whether a slot shall lie interleaved
  for (size_t s = 0; s < slots.size(); ++s) wanted[s] = slots[s].wanted;
  for (int head = static_cast<int>(groups.size()) - 1; head >= 0; --head) {
    const Call& convolution = calls[groups[head].calls[0]];
    if (groups[head].calls.size() != 1 || !is_convolution(convolution)) continue;
    const int result = convolution.operands[0].slot;
    int reader = head + 1;
    bool waits = true;
    for (; reader < static_cast<int>(groups.size()) && waits; ++reader) {
      for (int k = 1; k < convolution.noperands; ++k) waits &= !grouping_.writes(reader, convolution.operands[k].slot);
      if (grouping_.reads(reader, result) || grouping_.writes(reader, result)) break;
    }
    if (!waits || reader == static_cast<int>(groups.size()) || epilogues_[reader]) continue;
    if (is_convolution(calls[groups[reader].calls[0]])) continue;
    const char in_memory = in_memory_[result];
    const bool alone = is_dead(slots[result]) && is_promised(slots[result]) && users[result] == 2;
    if (alone) in_memory_[result] = 0;
    const std::vector<int>& members = groups[reader].calls;
    // What a sum or a mean of channels reads must be in memory, even if nobody else asks for it. That takes no more of
    // it than the convolution's result by itself would.
    std::vector<int> summed;
    for (const int c : members)
      if (const int slot = calls[c].operands[1].slot; is_sum_or_mean(calls[c]) && !in_memory_[slot])
        in_memory_[slot] = 1, summed.push_back(slot);
    const bool takes = interleaves && computes_interleaved(convolution);
    const bool source = takes && takes_interleaved_source(convolution, slots);
    // An image whose channels are summed, and that somebody keeps, is one that a convolution will read. If nobody keeps
    // it, nobody needs its channels apart.
    const auto is_wanted = [&](int c) {
      return wanted[calls[c].operands[0].slot] || (source && is_sum_or_mean(calls[c]));
    };
    const auto make = [&](bool interleaved) {
      epilogues_[reader] =
          Epilogue::make(groups[head].calls[0], members, calls, slots, in_memory_, interleaved, source);
    };
    if (takes && std::any_of(members.begin(), members.end(), is_wanted)) make(true);
    if (!epilogues_[reader]) make(false);
    if (!epilogues_[reader]) {
      for (const int slot : summed) in_memory_[slot] = 0;
      in_memory_[result] = in_memory;
      continue;
    }
    for (const int slot : summed) kept_ -= slot == result ? 0 : static_cast<int64_t>(slots[slot].storage->nbytes());
    runs_later_[head] = 1;
    for (size_t s = 0; s < slots.size() && epilogues_[reader]->interleaving(); ++s)
      wanted[s] |= epilogues_[reader]->takes_images(static_cast<int>(s));
    in_memory_[result] = !epilogues_[reader]->shares_memory(result);
    if (!in_memory_[result]) kept_ += static_cast<int64_t>(slots[result].storage->nbytes());
    // The convolution may also take a product that computes its input, if nobody else reads the product and no group
    // between changes what the product reads.
    const int read = convolution.operands[1].slot;
    if (head == 0 || groups[head - 1].calls.size() != 1 || !grouping_.writes(head - 1, read) || runs_later_[head - 1])
      continue;
    if (!is_dead(slots[read]) || !is_promised(slots[read]) || users[read] != 2) continue;
    const int index = groups[head - 1].calls[0];
    const Call& product = calls[index];
    bool unchanged = true;
    for (int g = head + 1; g < reader; ++g)
      for (int k = 1; k < product.noperands; ++k)
        unchanged &= !product.operands[k].storage || !grouping_.writes(g, product.operands[k].slot);
    if (!unchanged || !epilogues_[reader]->take_factors(index, calls, slots, in_memory_)) continue;
    runs_later_[head - 1] = 1;
    in_memory_[read] = 0;
    kept_ += static_cast<int64_t>(slots[read].storage->nbytes());
  }
}

void Plan::cut(size_t group, const Call* calls) {
  const Group& g = grouping_.groups()[group];
  GroupPlan& p = plans_[group];
  if (g.lead == 0) return;
  int64_t behind = 1, total = 0;
  for (const int c : g.calls) behind = std::max(behind, elements_behind(calls[c], g.lead));
  int64_t all = behind;
  for (int d = 0; d < g.lead; ++d) all *= g.extents[d];
  const int64_t share = all / get_num_threads();
  const int64_t wanted =
      share <= kSmallShare ? std::max(share, kLeastPiece) : std::clamp(share / kPiecesPerThread, kLeastPiece, kPiece);
  p.cut = g.lead - 1;
  while (p.cut > 0 && behind * g.extents[p.cut] <= wanted) behind *= g.extents[p.cut--];
  const int64_t extent = g.extents[p.cut];
  p.range = std::clamp<int64_t>(wanted / behind, 1, extent);
  p.pieces = (extent + p.range - 1) / p.range;
  p.range = (extent + p.pieces - 1) / p.pieces;
  if (behind % 16 != 0 && p.range > 64)
    p.range = std::min(extent, (p.range + 63) / 64 * 64);  // whole vectors and lines
  p.pieces = (extent + p.range - 1) / p.range;
  for (int d = 0; d < p.cut; ++d) p.outer *= g.extents[d];
  for (const int c : g.calls) total += elements_behind(calls[c], p.cut + 1) * p.range;
  p.work = std::max<int64_t>(total, 1);
}

// Whether the output `to` of a call can lie in the buffer of its input `from`: both have each element in the same
// place.
bool Plan::can_take_over(const Call& call, int from, int to, size_t group) const {
  if (!is_pointwise(call) || call.noutputs != 1) return false;
  const Operand &in = call.operands[from], &out = call.operands[to];
  const Partition &a = grouping_.partition(static_cast<int>(group), in.slot),
                  &b = grouping_.partition(static_cast<int>(group), out.slot);
  if (element_size(in.dtype) != element_size(out.dtype) || in.offset - a.begin != out.offset - b.begin) return false;
  for (int d = 0; d < call.ndim; ++d)
    if (call.shape[d] != 1 && in.strides[d] != out.strides[d]) return false;
  return a.steps[plans_[group].cut] == b.steps[plans_[group].cut];
}

void Plan::give_buffers(size_t group, const Call* calls, const std::vector<char>& in_registers) {
  GroupPlan& p = plans_[group];
  const size_t slots = in_memory_.size();
  p.buffers.assign(slots, -1);
  std::vector<int> last(slots, -1);  // by slot: the unit that uses it last
  bool any = false;
  const auto each_call = [&](size_t unit, const auto& visit) {
    for (int i = 0; i < p.units[unit].count; ++i) visit(calls[p.order[p.units[unit].first + i]]);
  };
  for (size_t u = 0; u < p.units.size(); ++u)
    each_call(u, [&](const Call& call) {
      for (int k = 0; k < call.noperands; ++k)
        if (const Operand& o = call.operands[k]; o.storage && !in_memory_[o.slot])
          last[o.slot] = static_cast<int>(u), any = true;
    });
  if (!any) return;
  struct Free {
    int64_t at;
    size_t bytes;
  };
  std::vector<Free> free;
  const auto bytes_of = [&](int slot) {
    const Partition& partition = grouping_.partition(static_cast<int>(group), slot);
    return (static_cast<size_t>(partition.steps[p.cut] * p.range) + 2 * kLine - 1) / kLine * kLine;
  };
  // Gives an output the buffer of an input that this call reads last, where that is possible. That is for single calls:
  // within a segment another call may still read the input.
  const auto take_over = [&](const Call& call, int k, int unit) {
    const int slot = call.operands[k].slot;
    for (int in = call.noutputs; in < call.noperands && p.buffers[slot] < 0; ++in) {
      const Operand& o = call.operands[in];
      if (!o.storage || in_memory_[o.slot] || last[o.slot] != unit || p.buffers[o.slot] < 0) continue;
      bool all = true;  // the call may read the input as several operands
      for (int other = call.noutputs; other < call.noperands; ++other)
        if (call.operands[other].storage && call.operands[other].slot == o.slot)
          all = all && can_take_over(call, other, k, group);
      if (!all) continue;
      p.buffers[slot] = p.buffers[o.slot];
      last[o.slot] = -1;  // so that its buffer is not freed below
    }
  };
  for (size_t u = 0; u < p.units.size(); ++u) {
    const int unit = static_cast<int>(u);
    each_call(u, [&](const Call& call) {
      for (int k = 0; k < call.noutputs; ++k) {
        const int slot = call.operands[k].slot;
        if (in_memory_[slot] || in_registers[slot] || p.buffers[slot] >= 0) continue;
        if (p.units[u].count == 1) take_over(call, k, unit);
        if (p.buffers[slot] >= 0) continue;
        const size_t bytes = bytes_of(slot);
        const auto found = std::find_if(free.begin(), free.end(), [&](const Free& f) { return f.bytes == bytes; });
        if (found != free.end()) {
          p.buffers[slot] = found->at;
          free.erase(found);
        } else {
          p.buffers[slot] = static_cast<int64_t>(p.scratch);
          p.scratch += bytes;
        }
      }
    });
    each_call(u, [&](const Call& call) {
      for (int k = 0; k < call.noperands; ++k) {
        const Operand& o = call.operands[k];
        if (!o.storage || in_memory_[o.slot] || last[o.slot] != unit || p.buffers[o.slot] < 0) continue;
        free.push_back({p.buffers[o.slot], bytes_of(o.slot)});
        last[o.slot] = -1;
      }
    });
  }
}

std::string Plan::describe(const Call* calls, const std::vector<Slot>& slots) const {
  std::string text;
  int loop = 0;
  for (size_t i = 0; i < plans_.size(); ++i) {
    const Group& g = grouping_.groups()[i];
    const GroupPlan& p = plans_[i];
    int64_t read = 0, written = 0, buffered = 0;
    for (size_t s = 0; s < slots.size(); ++s) {
      const int64_t bytes = static_cast<int64_t>(slots[s].storage->nbytes());
      const bool writes = grouping_.writes(static_cast<int>(i), static_cast<int>(s));
      const bool reads = grouping_.reads(static_cast<int>(i), static_cast<int>(s));
      const bool convolved = epilogues_[i] && epilogues_[i]->reads(static_cast<int>(s));
      if (!writes && !reads && !convolved) continue;
      if (!in_memory_[s]) {
        buffered += bytes;
      } else {
        written += writes ? bytes : 0;
        read += (reads || convolved) && !(writes && slots[s].storage->address() == nullptr) ? bytes : 0;
      }
    }
    if (runs_later_[i]) continue;
    text += cat("  loop ", ++loop, ": ",
                static_cast<int>(g.calls.size()) + (epilogues_[i] ? epilogues_[i]->others() : 0), " calls");
    if (epilogues_[i])
      text += interleavings_[i] ? " on blocks of a convolution, channels side by side" : " on blocks of a convolution";
    else if (g.calls.size() > 1)
      text += cat(", ", p.outer * p.pieces, " pieces of ", p.range, " along dimension ", p.cut, ", ", p.scratch,
                  " bytes of buffers");
    text += cat("; reads ", read, " and writes ", written, " bytes of memory");
    if (buffered) text += cat(", keeps ", buffered, " bytes out of it");
    text += loop > 1 ? cat("; apart because ", g.apart, "\n") : "\n";
    const Epilogue* e = epilogues_[i].get();
    const std::vector<Unit>& units = e ? e->units() : p.units;
    std::vector<int> order = p.order.empty() ? g.calls : p.order;
    int member = -1, unit = 0;
    if (e) {
      order.clear();
      for (const int c : e->order()) order.push_back(g.calls[c]);
      order.insert(order.begin(), e->convolution());
      member = -2;  // units number the members only, and the convolution is none
      if (e->product() >= 0) order.insert(order.begin(), e->product()), --member;
    }
    for (const int c : order) {
      const Call& call = calls[c];
      ++member;
      while (unit < static_cast<int>(units.size()) && member >= units[unit].first + units[unit].count) ++unit;
      const bool coded =
          member >= 0 && unit < static_cast<int>(units.size()) && (units[unit].segment >= 0 || units[unit].count > 1);
      text += cat(coded ? member == units[unit].first ? "    / " : "    | " : "    ", call.name, " ", call.dtype, "[");
      for (int d = 0; d < dims_of(call, is_pointwise(call) ? 0 : call.noutputs); ++d)
        text += cat(d ? ", " : "", sizes_of(call, is_pointwise(call) ? 0 : call.noutputs)[d]);
      text += "]";
      for (int k = call.noutputs; k < call.noperands; ++k) {
        text += k == call.noutputs ? " of " : ", ";
        text += call.operands[k].storage ? cat("%", call.operands[k].slot) : std::string("a number");
      }
      text += " ->";
      for (int k = 0; k < call.noutputs; ++k)
        text += cat(" %", call.operands[k].slot, in_memory_[call.operands[k].slot] ? "" : " (buffer)");
      text += "\n";
    }
  }
  return text;
}

}  // namespace mica::recording
