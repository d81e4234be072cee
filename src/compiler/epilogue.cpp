#include "compiler/epilogue.h"

#include <algorithm>
#include <atomic>
#include <string_view>

#include "core/channel_line.h"
#include "core/recorded_batch_norm.h"
#include "core/recorded_convolution.h"
#include "mica/backend.h"
#include "mica/core/scalar.h"
#include "mica/parallel.h"

namespace mica::recording {

namespace {

constexpr int kImage = 0, kChannel = 1, kPosition = 2, kBlockDims = 3;
constexpr int64_t kBlockPiece = 4096;    // elements that several passes go over in the first cache
constexpr int64_t kLeastPositions = 16;  // of fewer, rows are too short
constexpr int64_t kBlockGrain = 16384;   // elements that are worth a thread
constexpr int64_t kFloat = sizeof(float);

}  // namespace

// An operand of a shape that begins with images and channels, all else taken as one dimension.
bool Epilogue::flatten(const int64_t* sizes, int ndim, const Operand& o, Operand& as) const {
  if (ndim < kBlockDims || sizes[kImage] != images_ || sizes[kChannel] != channels_) return false;
  int64_t count = 1, step = 0;
  for (int d = ndim - 1; d >= kPosition; --d) {
    if (sizes[d] == 1) continue;
    if (count == 1) {
      step = o.strides[d];
    } else if (o.strides[d] != step * count) {
      return false;
    }
    count *= sizes[d];
  }
  if (count != positions_) return false;
  as = o;
  as.ndim = kBlockDims;
  as.strides[kImage] = images_ == 1 ? 0 : o.strides[kImage];
  as.strides[kChannel] = channels_ == 1 ? 0 : o.strides[kChannel];
  as.strides[kPosition] = step;
  as.sizes[kImage] = images_, as.sizes[kChannel] = channels_, as.sizes[kPosition] = positions_;
  return true;
}

// The whole of a storage, in the order of the convolution's result.
bool Epilogue::is_dense(const Operand& o) const {
  const int64_t plane = positions_ * kFloat;
  return o.dtype == DType::Float32 && o.offset == 0 && o.strides[kPosition] == kFloat &&
         (channels_ == 1 || o.strides[kChannel] == plane) && (images_ == 1 || o.strides[kImage] == channels_ * plane) &&
         static_cast<int64_t>((*slots_)[o.slot].storage->nbytes()) == images_ * channels_ * plane;
}

bool Epilogue::take_loop(const Call& call, Call& as) {
  if (call.noutputs != 1 || call.ndim != call_->operands[0].ndim ||
      !std::equal(call.shape, call.shape + call.ndim, call_->operands[0].sizes))
    return false;
  as = call;
  as.ndim = kBlockDims;
  as.shape[kImage] = images_, as.shape[kChannel] = channels_, as.shape[kPosition] = positions_;
  for (int k = 0; k < call.noperands; ++k)
    if (call.operands[k].storage && !flatten(call.shape, call.ndim, call.operands[k], as.operands[k])) return false;
  return true;
}

// The kernel computes x * scale + shift with one rounding, as addcmul of shift, scale and x does.
bool Epilogue::take_norm(const Call& call, Call& as) {
  const Operand &out = call.operands[0], &in = call.operands[1];
  for (int k = 0; k < call.noperands; ++k)
    if (call.operands[k].dtype != DType::Float32) return false;
  for (int k = 2; k < call.noperands; ++k)  // one number for each channel
    if ((images_ > 1 && call.operands[k].strides[kImage] != 0) || call.operands[k].sizes[kChannel] != channels_)
      return false;
  as = call;
  as.ndim = kBlockDims;
  as.shape[kImage] = images_, as.shape[kChannel] = channels_, as.shape[kPosition] = positions_;
  as.noperands = 4;
  if (!flatten(out.sizes, out.ndim, out, as.operands[0]) || !flatten(in.sizes, in.ndim, in, as.operands[3]))
    return false;
  const int slot = static_cast<int>(slots_->size() + 2 * norms_.size());
  norms_.push_back({call.operands[2], call.operands[3], call.operands[4], call.operands[5],
                    reinterpret_cast<const RecordedBatchNorm*>(call.arguments)->eps, slot});
  for (int k = 1; k <= 2; ++k) {  // the shift, then the scale
    Operand& o = as.operands[k];
    o = {};
    o.storage = out.storage;  // of its own there is none
    o.dtype = DType::Float32;
    o.ndim = kBlockDims;
    o.strides[kChannel] = channels_ == 1 ? 0 : kFloat;
    o.sizes[kImage] = images_, o.sizes[kChannel] = channels_, o.sizes[kPosition] = positions_;
    o.slot = k == 1 ? slot + 1 : slot;
  }
  as.name = "addcmul";
  as.dtype = as.result_dtype = DType::Float32;
  set_kernel(as, MICA_KERNEL(kCPU, addcmul), Scalar(1));
  return true;
}

// Of the positions of each channel. Nothing else of the group uses what it computes, so that it may run last.
bool Epilogue::take_reduction(const Call& call, Call& as) {
  const std::string_view name = call.name;
  const Operand& in = call.operands[1];
  Operand flat;
  if ((name != "reduce_mean" && name != "reduce_sum") || call.ndim != kPosition || call.noperands != 2 ||
      in.dtype != DType::Float32 || !flatten(in.sizes, in.ndim, in, flat) || !is_dense(flat))
    return false;
  as = call;
  return true;
}

bool Epilogue::take(const Call& call, Call& as) {
  if (is_pointwise(call)) return take_loop(call, as);
  if (std::string_view(call.name) == RecordedBatchNorm::kName) return take_norm(call, as);
  return take_reduction(call, as);
}

bool Epilogue::reads(int slot) const {
  for (int k = 1; k < call_->noperands; ++k)
    if (call_->operands[k].slot == slot) return true;
  return false;
}

std::unique_ptr<Epilogue> Epilogue::make(int convolution, const std::vector<int>& members, const Call* calls,
                                         const std::vector<Slot>& slots, const std::vector<char>& in_memory) {
  std::unique_ptr<Epilogue> e(new Epilogue);
  const Operand& result = calls[convolution].operands[0];
  e->convolution_ = convolution;
  e->call_ = &calls[convolution];
  e->slots_ = &slots;
  e->images_ = result.sizes[kImage];
  e->channels_ = result.sizes[kChannel];
  e->positions_ = 1;
  for (int d = kPosition; d < result.ndim; ++d) e->positions_ *= result.sizes[d];
  Operand flat;
  if (e->positions_ < kLeastPositions || !e->flatten(result.sizes, result.ndim, result, flat) || !e->is_dense(flat))
    return nullptr;
  e->calls_.resize(members.size());
  for (size_t i = 0; i < members.size(); ++i)
    if (!e->take(calls[members[i]], e->calls_[i])) return nullptr;

  // Blocks may be computed twice, and in any order beside what the convolution still has to read: what is written is
  // fresh memory, and of it each block uses its own part.
  std::vector<char> written(slots.size()), reduced(slots.size());
  for (const Call& call : e->calls_) {
    const int slot = call.operands[0].slot;
    if (e->reads(slot)) return nullptr;
    written[slot] = 1;
    if (!is_pointwise(call)) {
      reduced[slot] = 1;
    } else if (!is_promised(slots[slot])) {
      return nullptr;
    }
  }
  for (const Call& call : e->calls_)
    for (int k = 0; k < call.noperands; ++k) {
      const Operand& o = call.operands[k];
      if (!o.storage || o.slot >= static_cast<int>(slots.size())) continue;
      if (reduced[o.slot] && (is_pointwise(call) || k > 0 ||
                              std::count_if(e->calls_.begin(), e->calls_.end(),
                                            [&](const Call& other) { return other.operands[0].slot == o.slot; }) > 1))
        return nullptr;
      if (is_pointwise(call) && (written[o.slot] || o.slot == result.slot) && !e->is_dense(o)) return nullptr;
    }

  for (const Norm& norm : e->norms_)
    for (const Operand* o : {&norm.weight, &norm.bias, &norm.mean, &norm.variance})
      if (written[o->slot] || !in_memory[o->slot]) return nullptr;

  const size_t all = slots.size() + 2 * e->norms_.size();
  std::vector<char> asked_for(in_memory), in_registers(all);
  asked_for.resize(all, 1);
  std::vector<int> indices(members.size());
  for (size_t i = 0; i < members.size(); ++i) indices[i] = static_cast<int>(i);
  e->order_ = schedule(indices, e->calls_.data(), static_cast<int>(all));
  e->units_ =
      make_units(e->order_, e->calls_.data(), {kChannel, e->channels_}, asked_for, e->segments_, in_registers, 1);
  for (size_t i = 0; i < e->order_.size(); ++i) {  // what is reduced stays
    const Call& reduction = e->calls_[e->order_[i]];
    if (is_pointwise(reduction)) continue;
    e->reduces_ = true;
    if (!asked_for[reduction.operands[1].slot]) return nullptr;
    for (size_t later = i + 1; later < e->order_.size(); ++later)
      if (e->calls_[e->order_[later]].operands[0].slot == reduction.operands[1].slot) return nullptr;
  }
  if (!e->find_homes(asked_for, in_registers)) return nullptr;
  for (const Call& call : e->calls_)
    for (int k = 0; k < call.noperands; ++k)
      if (const Operand& o = call.operands[k];
          o.storage && o.slot < static_cast<int>(slots.size()) && e->home_[o.slot] < 0 && !in_registers[o.slot])
        return nullptr;
  e->slots_ = nullptr;
  return e;
}

bool Epilogue::take_factors(int index, const Call* calls, const std::vector<char>& in_memory) {
  int dense, numbers;
  const Call& product = calls[index];
  const Operand& in = call_->operands[1];
  if (!is_product_by_channel(product, dense, numbers) || product.operands[0].slot != in.slot ||
      product.ndim != in.ndim || !std::equal(in.sizes, in.sizes + in.ndim, product.shape))
    return false;
  const Operand &source = product.operands[dense], &factors = product.operands[numbers];
  for (const Operand* o : {&source, &factors}) {
    if (!in_memory[o->slot]) return false;
    for (const Call& call : calls_)
      if (call.operands[0].slot == o->slot) return false;
  }
  product_ = index;
  source_ = &source;
  factors_ = &factors;
  return true;
}

int Epilogue::unit_of(int position) const {
  int u = 0;
  while (position >= units_[u].first + units_[u].count) ++u;
  return u;
}

// Whether a slot can be written where another one lies: each element of that was read before. Within a segment an
// element is loaded by the call that reads it first.
bool Epilogue::follow(int earlier, int later) const {
  const int count = static_cast<int>(order_.size());
  int begins = count;
  for (int i = count - 1; i >= 0; --i)
    if (calls_[order_[i]].operands[0].slot == later) begins = i;
  if (begins == count) return false;
  const int unit = unit_of(begins);
  bool loaded = false;
  for (int i = units_[unit].first; i < count; ++i) {
    const Call& call = calls_[order_[i]];
    if (call.operands[0].slot == earlier) return false;
    for (int k = 1; k < call.noperands; ++k) {
      if (!call.operands[k].storage || call.operands[k].slot != earlier) continue;
      if (i <= begins) loaded = true;
      if (unit_of(i) != unit || !loaded) return false;
    }
  }
  return true;
}

// Memory for what nobody asks for: that of a result that is asked for, where each lies until the next one is written
// over it.
bool Epilogue::find_homes(const std::vector<char>& in_memory, const std::vector<char>& in_registers) {
  const int slots = static_cast<int>(slots_->size()), result = call_->operands[0].slot;
  home_.assign(slots, -1);
  for (int s = 0; s < slots; ++s)
    if (in_memory[s]) home_[s] = s;
  std::vector<int> chain, targets;  // in the order in which they are written
  if (!in_memory[result]) chain.push_back(result);
  for (const int i : order_) {
    const Call& call = calls_[i];
    const int slot = call.operands[0].slot;
    if (!is_pointwise(call) || in_registers[slot]) continue;
    std::vector<int>& list = in_memory[slot] ? targets : chain;
    if (std::find(list.begin(), list.end(), slot) == list.end()) list.push_back(slot);
  }
  if (chain.empty()) return true;
  for (size_t from = 0; from < 2; ++from) {
    if (from == 1) {  // the convolution's result has memory of its own after all
      if (chain[0] != result) return false;
      home_[result] = result;
      if (chain.size() == 1) return true;
    }
    for (const int target : targets) {
      bool fits = true;
      for (size_t i = from; i < chain.size() && fits; ++i)
        fits = follow(chain[i], i + 1 < chain.size() ? chain[i + 1] : target);
      if (!fits) continue;
      for (size_t i = from; i < chain.size(); ++i) home_[chain[i]] = target;
      return true;
    }
  }
  return false;
}

class Epilogue::Work final : public BlockWork {
 public:
  Work(const Epilogue& epilogue, const std::vector<Slot>& slots) : e_(epilogue) {
    static std::atomic<uint64_t> next{1};
    id_ = next.fetch_add(1, std::memory_order_relaxed);
    lines_.resize(2 * static_cast<size_t>(e_.channels_) * e_.norms_.size());
    bases_.resize(slots.size() + 2 * e_.norms_.size());
    for (size_t s = 0; s < slots.size(); ++s)
      if (e_.home_[s] >= 0) bases_[s] = static_cast<char*>(slots[e_.home_[s]].storage->address());
    for (size_t i = 0; i < e_.norms_.size(); ++i) fill_lines(e_.norms_[i], lines_.data() + 2 * i * channels());
  }

  void run(const Block& block) override {
    // One pass goes over the whole block; several find each piece in the first cache.
    const bool once = e_.units_.size() == 1, reduces = e_.reduces_ && block.positions == e_.positions_;
    if (e_.reduces_ && !reduces) unreduced_.store(true, std::memory_order_relaxed);
    const int64_t positions =
        once || reduces || block.positions <= kBlockPiece
            ? block.positions
            : (block.positions / ((block.positions + kBlockPiece - 1) / kBlockPiece) + 15) / 16 * 16;
    const int64_t channels = once ? block.channels : std::max<int64_t>(1, kBlockPiece / positions);
    Ready& ready = ready_of();
    for (int64_t c = 0; c < block.channels; c += channels)
      for (int64_t p = 0; p < block.positions; p += positions)
        run_piece(ready, {block.image, block.channel + c, std::min(channels, block.channels - c), block.position + p,
                          std::min(positions, block.positions - p)});
  }

  char* base(int slot) const { return bases_[slot]; }
  // What was left out because blocks were parts of planes.
  void reduce_the_rest() const {
    if (!unreduced_.load(std::memory_order_relaxed)) return;
    for (const Call& call : e_.calls_)
      for (int64_t i = 0; i < e_.images_ && !is_pointwise(call); ++i)
        reduce(call, {i, 0, e_.channels_, 0, e_.positions_});
  }

 private:
  // What a thread has prepared for blocks of one size.
  struct Ready {
    uint64_t owner = 0;
    int64_t channels = 0, positions = 0;
    std::vector<PreparedSegment> segments;
    std::vector<PointwiseLoop> loops;  // by unit
  };
  static Ready& ready_of() {
    static thread_local Ready ready;
    return ready;
  }
  size_t channels() const { return static_cast<size_t>(e_.channels_); }

  void fill_lines(const Norm& norm, float* scales) {
    const auto value = [&](const Operand& o, int64_t c) {
      return static_cast<double>(*reinterpret_cast<const float*>(bases_[o.slot] + o.offset + c * o.strides[kChannel]));
    };
    float* shifts = scales + e_.channels_;
    for (int64_t c = 0; c < e_.channels_; ++c) {
      const ChannelLine line(value(norm.weight, c), value(norm.bias, c), value(norm.mean, c),
                             reciprocal_deviation(value(norm.variance, c), norm.eps));
      scales[c] = static_cast<float>(line.scale);
      shifts[c] = static_cast<float>(line.shift);
    }
    bases_[norm.slot] = reinterpret_cast<char*>(scales);
    bases_[norm.slot + 1] = reinterpret_cast<char*>(shifts);
  }

  char* address(const Operand& o, const Block& b) const {
    return bases_[o.slot] + o.offset + b.image * o.strides[kImage] + b.channel * o.strides[kChannel] +
           b.position * o.strides[kPosition];
  }

  void prepare(Ready& ready, const Block& b) const {
    if (ready.owner == id_ && ready.channels == b.channels && ready.positions == b.positions) return;
    ready.owner = 0;  // what follows may throw
    ready.segments.resize(e_.segments_.size());
    ready.loops.resize(e_.units_.size());
    const int64_t shape[] = {1, b.channels, b.positions};
    for (size_t i = 0; i < e_.segments_.size(); ++i) {
      Segment segment = e_.segments_[i];
      segment.shape = shape;
      recording::prepare(ready.segments[i], segment, {kChannel, b.channels});
      ready.segments[i].arguments.constants = e_.segments_[i].constants;
    }
    for (size_t u = 0; u < e_.units_.size(); ++u) {
      const Call& call = e_.calls_[e_.order_[e_.units_[u].first]];
      if (e_.units_[u].segment < 0 && is_pointwise(call)) prepare_loop(ready.loops[u], call, b);
    }
    ready.owner = id_;
    ready.channels = b.channels;
    ready.positions = b.positions;
  }

  static void prepare_loop(PointwiseLoop& loop, const Call& call, const Block& b) {
    loop.device = call.device;
    loop.dtype = call.dtype;
    loop.result_dtype = call.result_dtype;
    loop.noutputs = call.noutputs;
    loop.noperands = call.noperands;
    loop.numbers = 0;
    loop.numel = b.channels * b.positions;
    bool one_run = true;
    for (int k = 0; k < call.noperands; ++k) {
      const Operand& o = call.operands[k];
      loop.dtypes[k] = o.dtype;
      loop.strides[0][k] = o.storage ? o.strides[kPosition] : 0;
      loop.strides[1][k] = o.storage ? o.strides[kChannel] : 0;
      one_run &= loop.strides[1][k] == loop.strides[0][k] * b.positions;
      if (o.storage) continue;
      loop.numbers |= 1u << k;
      loop.data[k] = const_cast<char*>(reinterpret_cast<const char*>(o.number));
    }
    one_run |= b.channels == 1;
    loop.ndim = one_run ? 1 : 2;
    loop.shape[0] = one_run ? loop.numel : b.positions;
    loop.shape[1] = b.channels;
  }

  void run_piece(Ready& ready, const Block& b) const {
    prepare(ready, b);
    for (size_t u = 0; u < e_.units_.size(); ++u) {
      const Unit& unit = e_.units_[u];
      if (unit.segment >= 0) {
        const Segment& s = e_.segments_[unit.segment];
        char* addresses[Program::kStreams];
        for (int k = 0; k < s.streams; ++k) addresses[k] = address(*s.operands[k], b);
        execute(ready.segments[unit.segment], s, addresses);
        continue;
      }
      const Call& call = e_.calls_[e_.order_[unit.first]];
      if (!is_pointwise(call)) {
        if (b.positions == e_.positions_) reduce(call, b);
        continue;
      }
      PointwiseLoop& loop = ready.loops[u];
      for (int k = 0; k < call.noperands; ++k)
        if (call.operands[k].storage) loop.data[k] = address(call.operands[k], b);
      call.run_loop(call, loop);
    }
  }

  void reduce(const Call& call, const Block& b) const {
    int64_t sizes[2][kDims], strides[2][kDims];
    TensorView views[2];
    for (int k = 0; k < 2; ++k) {
      const Operand& o = call.operands[k];
      TensorView& v = views[k];
      v.ndim = o.ndim - 1;
      v.numel = 1;
      for (int d = 0; d < v.ndim; ++d) {
        sizes[k][d] = d == 0 ? b.channels : o.sizes[d + 1];
        strides[k][d] = o.strides[d + 1] / element_size(o.dtype);
        v.numel *= sizes[k][d];
      }
      v.sizes = sizes[k];
      v.strides = strides[k];
      v.dtype = o.dtype;
      v.device = call.device;
      v.data = bases_[o.slot] + o.offset + b.image * o.strides[kImage] + b.channel * o.strides[kChannel];
    }
    call.run_rows(call, views, kChannel);
  }

  const Epilogue& e_;
  uint64_t id_;
  std::vector<float> lines_;  // of each norm, the scales and then the shifts
  std::vector<char*> bases_;  // by slot
  std::atomic<bool> unreduced_{false};
};

void Epilogue::run(const std::vector<Slot>& slots) const {
  Work work(*this, slots);
  TensorView views[kOperands];
  int64_t strides[kOperands][kDims];
  for (int k = 0; k < call_->noperands; ++k) {
    const Operand& o = call_->operands[k];
    TensorView& v = views[k];
    v.ndim = o.ndim;
    v.numel = 1;
    for (int d = 0; d < o.ndim; ++d) {
      strides[k][d] = o.strides[d] / element_size(o.dtype);
      v.numel *= o.sizes[d];
    }
    v.sizes = o.sizes;
    v.strides = strides[k];
    v.dtype = o.dtype;
    v.device = call_->device;
    v.data = (k == 0 ? work.base(o.slot) : static_cast<char*>(slots[o.slot].storage->address())) + o.offset;
  }
  ChannelFactors factors{};
  if (source_) {
    views[1].data = static_cast<char*>(slots[source_->slot].storage->address()) + source_->offset;
    factors.data =
        reinterpret_cast<const float*>(static_cast<char*>(slots[factors_->slot].storage->address()) + factors_->offset);
    factors.image_step = factors_->strides[kImage] / kFloat;
    factors.channel_step = factors_->strides[kChannel] / kFloat;
  }
  run_convolution(*call_, views, &work, source_ ? &factors : nullptr);
  if (work.is_done()) return work.reduce_the_rest();
  const int64_t step = std::max<int64_t>(1, kBlockPiece / positions_), parts = (channels_ + step - 1) / step;
  parallel_for(0, images_ * parts, std::max<int64_t>(1, kBlockGrain / (step * positions_)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t first = i % parts * step;
                   work.run({i / parts, first, std::min(step, channels_ - first), 0, positions_});
                 }
               });
}

}  // namespace mica::recording
