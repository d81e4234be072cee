// Runs the groups of a plan, piece by piece, on the threads of the pool.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "compiler/epilogue.h"
#include "compiler/plan.h"
#include "core/recorded_convolution.h"
#include "mica/parallel.h"

namespace mica::recording {

namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

// A thread's memory for buffers, which is kept from one run to the next.
class Scratch {
 public:
  char* get(size_t bytes) {
    if (bytes > size_) {
      memory_.reset(static_cast<char*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
      size_ = memory_ ? bytes : 0;
      if (!memory_) throw std::bad_alloc();
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> memory_;
  size_t size_ = 0;
};
thread_local Scratch scratch;

// A call as its kernel gets it for pieces of `range` indices of dimension `cut`. Only addresses differ between pieces.
struct Prepared {
  const Call* call;
  PointwiseLoop loop;
  TensorView views[kOperands];
  int64_t sizes[kOperands][kDims], strides[kOperands][kDims];
};

void prepare_loop(Prepared& p, int cut, int64_t range) {
  const Call& call = *p.call;
  PointwiseLoop& loop = p.loop;
  loop.device = call.device;
  loop.dtype = call.dtype;
  loop.result_dtype = call.result_dtype;
  loop.noutputs = call.noutputs;
  loop.noperands = call.noperands;
  loop.numbers = 0;
  loop.numel = 1;
  for (int k = 0; k < call.noperands; ++k) {
    loop.dtypes[k] = call.operands[k].dtype;
    if (call.operands[k].storage) continue;
    loop.numbers |= 1u << k;
    loop.data[k] = const_cast<char*>(reinterpret_cast<const char*>(call.operands[k].number));
  }
  int n = 0;
  for (int d = call.ndim - 1; d >= cut; --d) {
    const int64_t extent = d == cut ? range : call.shape[d];
    if (extent == 1) continue;
    int64_t step[kOperands];
    for (int k = 0; k < call.noperands; ++k) step[k] = call.operands[k].storage ? call.operands[k].strides[d] : 0;
    loop.numel *= extent;
    bool merge = n > 0;
    for (int k = 0; k < call.noperands && merge; ++k) merge = step[k] == loop.strides[n - 1][k] * loop.shape[n - 1];
    if (merge) {
      loop.shape[n - 1] *= extent;
      continue;
    }
    loop.shape[n] = extent;
    std::copy(step, step + call.noperands, loop.strides[n]);
    ++n;
  }
  if (n == 0) {  // a single element
    n = 1;
    loop.shape[0] = 1;
    for (int k = 0; k < call.noperands; ++k)
      loop.strides[0][k] = call.operands[k].storage ? element_size(call.operands[k].dtype) : 0;
  }
  loop.ndim = n;
}

void prepare_views(Prepared& p, int cut, int64_t range) {
  const Call& call = *p.call;
  for (int k = 0; k < call.noperands; ++k) {
    const Operand& o = call.operands[k];
    TensorView& v = p.views[k];
    v.ndim = o.ndim - cut;
    v.numel = 1;
    for (int d = 0; d < v.ndim; ++d) {
      p.sizes[k][d] = d == 0 && call.ndim > 0 ? range : o.sizes[cut + d];
      p.strides[k][d] = o.strides[cut + d] / element_size(o.dtype);
      v.numel *= p.sizes[k][d];
    }
    v.sizes = p.sizes[k];
    v.strides = p.strides[k];
    v.dtype = o.dtype;
    v.device = call.device;
  }
}

void prepare(Prepared& p, const Call& call, int cut, int64_t range) {
  p.call = &call;
  is_pointwise(call) ? prepare_loop(p, cut, range) : prepare_views(p, cut, range);
}

void execute(Prepared& p, int cut) {
  is_pointwise(*p.call) ? p.call->run_loop(*p.call, p.loop) : p.call->run_rows(*p.call, p.views, cut);
}

}  // namespace

// The kernel shares the work among threads by itself.
void run_alone(const Call& call, const std::vector<Slot>& slots) {
  Prepared p;  // kept on the stack and not cleared: it is 6 KB, which takes longer than a call
  const int64_t range = call.ndim > 0 ? call.shape[0] : 1;
  prepare(p, call, 0, range);
  for (int k = 0; k < call.noperands; ++k) {
    const Operand& o = call.operands[k];
    if (!o.storage) continue;
    char* at = static_cast<char*>(slots[o.slot].storage->address()) + o.offset;
    if (is_pointwise(call)) {
      p.loop.data[k] = at;
    } else {
      p.views[k].data = at;
    }
  }
  execute(p, 0);
}

// The address of an operand's piece that begins at `index`.
static char* address(const Plan& plan, size_t group, const Operand& o, const int64_t* index, char* buffers,
                     const std::vector<Slot>& slots) {
  const GroupPlan& how = plan[group];
  int64_t offset = o.offset;
  for (int d = 0; d <= how.cut; ++d) offset += index[d] * o.strides[d];
  if (how.buffers[o.slot] < 0) return static_cast<char*>(slots[o.slot].storage->address()) + offset;
  // The buffer holds only this piece of the storage: the address is that within the piece.
  const Partition& partition = plan.grouping().partition(static_cast<int>(group), o.slot);
  offset -= partition.begin;
  for (int d = 0; d <= how.cut; ++d) offset -= index[d] * partition.steps[d];
  return buffers + how.buffers[o.slot] + offset;
}

void run(const Plan& plan, size_t group, const Call* calls, const std::vector<Slot>& slots) {
  if (plan.runs_later(group)) return;
  if (const Epilogue* epilogue = plan.epilogue(group)) return epilogue->run(slots);
  const Group& g = plan.grouping().groups()[group];
  const GroupPlan& how = plan[group];
  if (plan.interleaving(group)) {
    const Call& call = calls[g.calls[0]];
    ConvolutionViews on(call, slots, static_cast<bool>(slots[call.operands[1].slot].interleaved), true);
    return run_convolution(call, on.views, nullptr, nullptr, true);
  }
  if (g.calls.size() == 1) return run_alone(calls[g.calls[0]], slots);
  const int cut = how.cut;
  const int64_t extent = g.extents[cut], grain = std::max<int64_t>(1, kGrain / how.work);
  parallel_for(0, how.outer * how.pieces, grain, [&](int64_t begin, int64_t end) {
    const size_t count = how.order.size(), coded = how.segments.size();
    const auto whole_lines = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
    const size_t calls_bytes = whole_lines(sizeof(Prepared) * count);
    const size_t segments_bytes = whole_lines(sizeof(PreparedSegment) * coded);
    char* memory = scratch.get(calls_bytes + segments_bytes + how.scratch);
    auto* prepared = reinterpret_cast<Prepared*>(memory);
    auto* segments = reinterpret_cast<PreparedSegment*>(memory + calls_bytes);
    char* buffers = memory + calls_bytes + segments_bytes;
    int64_t now = 0;  // the number of indices that `prepared` and `segments` are for
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece % how.pieces * how.range, range = std::min(how.range, extent - first);
      if (range != now) {
        for (const Unit& unit : how.units)
          if (unit.segment < 0) prepare(prepared[unit.first], calls[how.order[unit.first]], cut, range);
        for (size_t i = 0; i < coded; ++i) prepare(segments[i], how.segments[i], {cut, range});
        now = range;
      }
      int64_t index[kDims], rest = piece / how.pieces;
      for (int d = cut - 1; d >= 0; --d) index[d] = rest % g.extents[d], rest /= g.extents[d];
      index[cut] = first;
      for (const Unit& unit : how.units) {
        if (unit.segment >= 0) {
          const Segment& s = how.segments[unit.segment];
          char* addresses[Program::kStreams];
          for (int k = 0; k < s.streams; ++k)
            addresses[k] = address(plan, group, *s.operands[k], index, buffers, slots);
          execute(segments[unit.segment], s, addresses);
          continue;
        }
        Prepared& p = prepared[unit.first];
        for (int k = 0; k < p.call->noperands; ++k) {
          const Operand& o = p.call->operands[k];
          if (!o.storage) continue;
          char* at = address(plan, group, o, index, buffers, slots);
          if (p.call->run_loop) {
            p.loop.data[k] = at;
          } else {
            p.views[k].data = at;
          }
        }
        execute(p, cut);
      }
    }
  });
}

}  // namespace mica::recording
