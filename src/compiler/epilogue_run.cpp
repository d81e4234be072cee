// Runs an epilogue: a convolution, and on each block of its result the calls that follow it.
#include <algorithm>
#include <atomic>

#include "compiler/epilogue.h"
#include "core/channel_line.h"
#include "core/recorded_convolution.h"
#include "mica/parallel.h"

namespace mica::recording {

namespace {

constexpr int64_t kBlockPiece = 4096;   // elements that stay in the first cache while several passes go over them
constexpr int64_t kBlockGrain = 16384;  // elements that are worth a thread

}  // namespace

// What the convolution's kernel calls for each block.
class Epilogue::Work final : public BlockWork {
 public:
  Work(const Epilogue& epilogue, const std::vector<Slot>& slots) : e_(epilogue) {
    static std::atomic<uint64_t> next{1};
    id_ = next.fetch_add(1, std::memory_order_relaxed);
    // Where channels lie side by side a pass goes over rows of them. Some rows together are whole groups of vectors.
    while (e_.interleaving_ && repeat_ < kMostRepeats &&
           (e_.channels_ * repeat_ % kGroup != 0 || e_.channels_ * repeat_ < kLeastRow))
      repeat_ *= 2;
    lines_.resize(2 * line() * e_.norms_.size());
    bases_.resize(slots.size() + 2 * e_.norms_.size());
    for (size_t s = 0; s < slots.size(); ++s)
      if (e_.home_[s] >= 0) bases_[s] = static_cast<char*>(slots[e_.home_[s]].storage->address());
    for (size_t i = 0; i < e_.norms_.size(); ++i) fill_lines(e_.norms_[i], lines_.data() + 2 * i * line());
  }

  void run(const Block& block) override {
    // A single pass goes over the whole block. Several passes go over pieces of it, which stay in the first cache.
    const bool once = e_.units_.size() == 1, reduces = e_.reduces_ && block.positions == e_.positions_;
    if (e_.reduces_ && !reduces) unreduced_.store(true, std::memory_order_relaxed);
    int64_t positions = block.positions, channels = block.channels;
    if (e_.interleaving_) {
      if (!once) positions = std::max<int64_t>(1, kBlockPiece / channels / repeat_) * repeat_;
    } else {
      if (!once && !reduces && positions > kBlockPiece)
        positions = (positions / ((positions + kBlockPiece - 1) / kBlockPiece) + 15) / 16 * 16;
      if (!once) channels = std::max<int64_t>(1, kBlockPiece / positions);
    }
    Ready& ready = ready_of();
    for (int64_t c = 0; c < block.channels; c += channels)
      for (int64_t p = 0; p < block.positions; p += positions)
        run_piece(ready, {block.image, block.channel + c, std::min(channels, block.channels - c), block.position + p,
                          std::min(positions, block.positions - p)});
    if (!e_.interleaving_ || !reduces) return;
    for (const Call& call : e_.calls_)
      if (!is_pointwise(call)) reduce(call, block);
  }

  char* base(int slot) const { return bases_[slot]; }
  // Runs the reductions, if a block had only some positions of its channels: such a block cannot reduce.
  void reduce_the_rest() const {
    if (!unreduced_.load(std::memory_order_relaxed)) return;
    constexpr int64_t kTogether = 16;
    const int64_t step = e_.interleaving_ ? kTogether : e_.channels_, parts = (e_.channels_ + step - 1) / step;
    for (const Call& call : e_.calls_) {
      if (is_pointwise(call)) continue;
      parallel_for(0, e_.images_ * parts,
                   e_.interleaving_ ? kBlockGrain / (step * e_.positions_) + 1 : e_.images_ * parts,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t first = i % parts * step;
                       reduce(call, {i / parts, first, std::min(step, e_.channels_ - first), 0, e_.positions_});
                     }
                   });
    }
  }

 private:
  // What a thread has prepared for blocks of one size. It is kept from one block to the next.
  struct Ready {
    uint64_t owner = 0;  // the id of the work that it is for; 0 is none
    int64_t channels = 0, positions = 0;
    std::vector<PreparedSegment> segments;
    std::vector<PointwiseLoop> loops;  // by unit
  };
  static Ready& ready_of() {
    static thread_local Ready ready;
    return ready;
  }
  size_t line() const { return static_cast<size_t>(e_.channels_ * repeat_); }

  // The numbers of some channels.
  void read(const Operand& o, int64_t first, int64_t count, double* to) const {
    const char* from = bases_[o.slot] + o.offset + first * o.strides[kChannel];
    if (o.strides[kChannel] == kFloat && count == kChannels) {  // a loop that compilers make vectors of
      for (int64_t c = 0; c < kChannels; ++c) to[c] = static_cast<double>(reinterpret_cast<const float*>(from)[c]);
      return;
    }
    for (int64_t c = 0; c < count; ++c)
      to[c] = static_cast<double>(*reinterpret_cast<const float*>(from + c * o.strides[kChannel]));
  }

  // Computes the scales and the shifts of a norm, as often as rows are taken together.
  void fill_lines(const Norm& norm, float* scales) {
    float* shifts = scales + line();
    // By some channels at a time, so that compilers make vectors of them.
    double weight[kChannels] = {}, bias[kChannels] = {}, mean[kChannels] = {}, variance[kChannels] = {};
    for (int64_t first = 0; first < e_.channels_; first += kChannels) {
      const int64_t count = std::min(kChannels, e_.channels_ - first);
      read(norm.weight, first, count, weight);
      read(norm.bias, first, count, bias);
      read(norm.mean, first, count, mean);
      read(norm.variance, first, count, variance);
      float scale[kChannels], shift[kChannels];
      for (int64_t c = 0; c < kChannels; ++c) {
        const ChannelLine line(weight[c], bias[c], mean[c], reciprocal_deviation(variance[c], norm.eps));
        scale[c] = static_cast<float>(line.scale);
        shift[c] = static_cast<float>(line.shift);
      }
      std::copy_n(scale, count, scales + first);
      std::copy_n(shift, count, shifts + first);
    }
    for (int64_t i = 1; i < repeat_; ++i) {
      std::copy_n(scales, e_.channels_, scales + i * e_.channels_);
      std::copy_n(shifts, e_.channels_, shifts + i * e_.channels_);
    }
    bases_[norm.slot] = reinterpret_cast<char*>(scales);
    bases_[norm.slot + 1] = reinterpret_cast<char*>(shifts);
  }

  char* address(const Operand& o, const Block& b) const {
    return bases_[o.slot] + o.offset + b.image * o.strides[kImage] + b.channel * o.strides[e_.channel_dim()] +
           b.position * o.strides[e_.position_dim()];
  }

  void prepare(Ready& ready, const Block& b) const {
    if (ready.owner == id_ && ready.channels == b.channels && ready.positions == b.positions) return;
    ready.owner = 0;  // what follows may throw, and would leave it half prepared
    ready.segments.resize(e_.segments_.size());
    ready.loops.resize(e_.units_.size());
    const int64_t outer = e_.interleaving_ ? b.positions : b.channels;
    const int64_t shape[] = {1, outer, e_.interleaving_ ? b.channels : b.positions};
    for (size_t i = 0; i < e_.segments_.size(); ++i) {
      Segment segment = e_.segments_[i];
      segment.shape = shape;
      recording::prepare(ready.segments[i], segment, {1, outer});
      ready.segments[i].arguments.constants = e_.segments_[i].constants;
    }
    for (size_t u = 0; u < e_.units_.size(); ++u) {
      const Call& call = e_.calls_[e_.order_[e_.units_[u].first]];
      if (e_.units_[u].segment < 0 && is_pointwise(call)) prepare_loop(ready.loops[u], call, shape[1], shape[2]);
    }
    ready.owner = id_;
    ready.channels = b.channels;
    ready.positions = b.positions;
  }

  // Whether `repeat_` rows of a call are as good as one: operands are dense or lines of norms.
  bool joins_rows(const Call& call, int64_t rows, int64_t count) const {
    if (repeat_ == 1 || rows % repeat_ != 0 || count != e_.channels_) return false;
    for (int k = 0; k < call.noperands; ++k) {
      const Operand& o = call.operands[k];
      if (o.storage && !is_line(o) && (o.strides[2] == 0 || o.strides[1] != o.strides[2] * count)) return false;
    }
    return true;
  }
  bool is_line(const Operand& o) const { return o.slot >= static_cast<int>(e_.home_.size()); }

  // A loop over `rows` of `count` elements.
  void prepare_loop(PointwiseLoop& loop, const Call& call, int64_t rows, int64_t count) const {
    const int64_t together = joins_rows(call, rows, count) ? repeat_ : 1;
    loop.device = call.device;
    loop.dtype = call.dtype;
    loop.result_dtype = call.result_dtype;
    loop.noutputs = call.noutputs;
    loop.noperands = call.noperands;
    loop.numbers = 0;
    loop.numel = rows * count;
    bool one_run = true;
    for (int k = 0; k < call.noperands; ++k) {
      const Operand& o = call.operands[k];
      loop.dtypes[k] = o.dtype;
      loop.strides[0][k] = o.storage ? o.strides[2] : 0;
      loop.strides[1][k] = o.storage ? together * o.strides[1] : 0;
      one_run &= loop.strides[1][k] == loop.strides[0][k] * together * count;
      if (o.storage) continue;
      loop.numbers |= 1u << k;
      loop.data[k] = const_cast<char*>(reinterpret_cast<const char*>(o.number));
    }
    one_run |= rows == together;
    loop.ndim = one_run ? 1 : 2;
    loop.shape[0] = one_run ? loop.numel : together * count;
    loop.shape[1] = rows / together;
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
        if (b.positions == e_.positions_ && !e_.interleaving_) reduce(call, b);
        continue;
      }
      PointwiseLoop& loop = ready.loops[u];
      for (int k = 0; k < call.noperands; ++k)
        if (call.operands[k].storage) loop.data[k] = address(call.operands[k], b);
      call.run_loop(call, loop);
    }
  }

  // Sums or averages the positions of a block that has all of its channels.
  void reduce_interleaved(const Call& call, const Block& b) const {
    constexpr int64_t kTogether = 64;
    const Operand& out = call.operands[0];
    const char* from = bases_[call.operands[1].slot] + (b.image * e_.positions_ * e_.channels_ + b.channel) * kFloat;
    char* to = bases_[out.slot] + out.offset + b.image * out.strides[kImage] + b.channel * out.strides[kChannel];
    const double count = is_mean(call) ? static_cast<double>(e_.positions_) : 1;
    for (int64_t first = 0; first < b.channels; first += kTogether) {
      const int64_t channels = std::min(kTogether, b.channels - first);
      double sums[kTogether] = {};
      sum_positions(reinterpret_cast<const float*>(from) + first, e_.channels_, sums, channels, e_.positions_);
      for (int64_t c = 0; c < channels; ++c)
        *reinterpret_cast<float*>(to + (first + c) * out.strides[kChannel]) = static_cast<float>(sums[c] / count);
    }
  }

  // Runs a reduction on a block that has all positions of its channels.
  void reduce(const Call& call, const Block& b) const {
    if (e_.interleaving_) return reduce_interleaved(call, b);
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

  static constexpr int64_t kGroup = 64, kLeastRow = 192, kMostRepeats = 8, kChannels = 16;
  const Epilogue& e_;
  uint64_t id_;
  int64_t repeat_ = 1;                  // how many rows of channels are taken together
  std::vector<float> lines_;            // for each norm, the scales and then the shifts
  std::vector<char*> bases_;            // by slot: where its memory begins
  std::atomic<bool> unreduced_{false};  // whether a block was left without its reductions
};

void Epilogue::run(const std::vector<Slot>& slots) const {
  Work work(*this, slots);
  ConvolutionViews on(*call_, slots, source_interleaved_, static_cast<bool>(interleaving_));
  on.views[0].data = work.base(call_->operands[0].slot) + call_->operands[0].offset;
  ChannelFactors factors{};
  if (source_) {
    on.views[1].data = static_cast<char*>(slots[source_->slot].storage->address()) + source_->offset;
    factors.data =
        reinterpret_cast<const float*>(static_cast<char*>(slots[factors_->slot].storage->address()) + factors_->offset);
    factors.image_step = factors_->strides[kImage] / kFloat;
    factors.channel_step = factors_->strides[kChannel] / kFloat;
  }
  run_convolution(*call_, on.views, &work, source_ ? &factors : nullptr, interleaving_ || source_interleaved_);
  if (work.is_done()) return work.reduce_the_rest();
  // The kernel has not told of its blocks: the calls run on the finished result, a few channels or positions at a time.
  const int64_t all = interleaving_ ? positions_ : channels_, inner = interleaving_ ? channels_ : positions_;
  const int64_t step = std::max<int64_t>(1, kBlockPiece / inner), parts = (all + step - 1) / step;
  parallel_for(0, images_ * parts, std::max<int64_t>(1, kBlockGrain / (step * inner)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % parts * step, count = std::min(step, all - first);
      if (interleaving_) {
        work.run({i / parts, 0, channels_, first, count});
      } else {
        work.run({i / parts, first, count, 0, positions_});
      }
    }
  });
}

}  // namespace mica::recording
