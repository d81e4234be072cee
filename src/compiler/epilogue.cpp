#include "compiler/epilogue.h"

#include <algorithm>
#include <string_view>

#include "core/recorded_batch_norm.h"
#include "core/recorded_convolution.h"
#include "core/silu_of_line.h"
#include "mica/backend.h"
#include "mica/core/scalar.h"

namespace mica::recording {

// Of convolutions with fewer positions the rows are too short.
static constexpr int64_t kLeastPositions = 16;

static bool is_norm(const Call& call) {
  return !is_pointwise(call) && std::string_view(call.name) == RecordedBatchNorm::kName;
}
static double eps_of(const Call& norm) { return reinterpret_cast<const RecordedBatchNorm*>(norm.arguments)->eps; }

// Describes an operand as images of channels of positions: all dimensions behind the channels become one. False where
// its strides do not allow that or its shape is not the convolution's.
bool Epilogue::flatten(const int64_t* sizes, int ndim, const Operand& o, Operand& as) {
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
  const int64_t image = images_ == 1 ? 0 : o.strides[kImage], channel = channels_ == 1 ? 0 : o.strides[kChannel];
  const bool whole = interleaving_ && fills_its_storage(o, image, channel, step);
  if (interleaving_) {
    // Whole images lie interleaved, too. What has one value for each channel is in its own order.
    if (!whole && step != 0) return false;
    (whole ? whole_ : partial_)[o.slot] = 1;
  }
  as.strides[kImage] = image;
  as.strides[channel_dim()] = whole ? kFloat : channel;
  as.strides[position_dim()] = whole ? channels_ * kFloat : step;
  set_shape(as.sizes);
  return true;
}

void Epilogue::set_shape(int64_t* sizes) const {
  sizes[kImage] = images_, sizes[channel_dim()] = channels_, sizes[position_dim()] = positions_;
}

// Whether an operand is the whole of its storage, in the order of the convolution's result.
bool Epilogue::fills_its_storage(const Operand& o, int64_t image, int64_t channel, int64_t position) const {
  const int64_t plane = positions_ * kFloat;
  return o.dtype == DType::Float32 && o.offset == 0 && position == kFloat && (channels_ == 1 || channel == plane) &&
         (images_ == 1 || image == channels_ * plane) &&
         static_cast<int64_t>((*slots_)[o.slot].storage->nbytes()) == images_ * channels_ * plane;
}

// The same of an operand that flatten() has made.
bool Epilogue::fills_its_storage(const Operand& o) const {
  if (interleaving_) return whole_[o.slot];
  return fills_its_storage(o, o.strides[kImage], o.strides[kChannel], o.strides[kPosition]);
}

bool Epilogue::take_loop(const Call& call, Call& as) {
  if (call.noutputs != 1 || call.ndim != call_->operands[0].ndim ||
      !std::equal(call.shape, call.shape + call.ndim, call_->operands[0].sizes))
    return false;
  as = call;
  as.ndim = kBlockDims;
  set_shape(as.shape);
  for (int k = 0; k < call.noperands; ++k)
    if (call.operands[k].storage && !flatten(call.shape, call.ndim, call.operands[k], as.operands[k])) return false;
  return true;
}

// A norm becomes addcmul of shift, scale and x. Its kernel computes x * scale + shift with one rounding, as addcmul
// does.
bool Epilogue::take_norm(const Call& call, Call& as) {
  const Operand &out = call.operands[0], &in = call.operands[1];
  for (int k = 0; k < call.noperands; ++k)
    if (call.operands[k].dtype != DType::Float32) return false;
  for (int k = 2; k < call.noperands; ++k)  // weight, bias, mean and variance have one number for each channel
    if ((images_ > 1 && call.operands[k].strides[kImage] != 0) || call.operands[k].sizes[kChannel] != channels_)
      return false;
  as = call;
  as.ndim = kBlockDims;
  set_shape(as.shape);
  as.noperands = 4;
  if (!flatten(out.sizes, out.ndim, out, as.operands[0]) || !flatten(in.sizes, in.ndim, in, as.operands[3]))
    return false;
  const int slot = static_cast<int>(slots_->size() + 2 * norms_.size());
  norms_.push_back({call.operands[2], call.operands[3], call.operands[4], call.operands[5], eps_of(call), slot});
  for (int k = 1; k <= 2; ++k) {  // the shift, then the scale
    Operand& o = as.operands[k];
    o = {};
    o.storage = out.storage;  // any storage: it only says that this operand is no number
    o.dtype = DType::Float32;
    o.ndim = kBlockDims;
    o.strides[channel_dim()] = channels_ == 1 ? 0 : kFloat;
    set_shape(o.sizes);
    o.slot = k == 1 ? slot + 1 : slot;
  }
  as.name = "addcmul";
  as.dtype = as.result_dtype = DType::Float32;
  set_kernel(as, MICA_KERNEL(kCPU, addcmul), Scalar(1));
  return true;
}

// The sum or the mean of the positions of each channel. No other member uses its result, so that it may run last.
bool Epilogue::take_reduction(const Call& call, Call& as) {
  const Operand& in = call.operands[1];
  Operand flat;
  if (interleaving_ && call.operands[0].dtype != DType::Float32) return false;
  if (!is_sum_or_mean(call) || call.ndim != kPosition || call.noperands != 2 || in.dtype != DType::Float32 ||
      !flatten(in.sizes, in.ndim, in, flat) || !fills_its_storage(flat))
    return false;
  as = call;
  return true;
}

bool Epilogue::take(const Call& call, Call& as) {
  if (is_pointwise(call)) return take_loop(call, as);
  if (is_norm(call)) return take_norm(call, as);
  return take_reduction(call, as);
}

bool Epilogue::reads(int slot) const {
  for (int k = 1; k < call_->noperands; ++k)
    if (call_->operands[k].slot == slot) return true;
  return false;
}

std::unique_ptr<Epilogue> Epilogue::make(int convolution, const std::vector<int>& members, const Call* calls,
                                         const std::vector<Slot>& slots, const std::vector<char>& in_memory,
                                         bool interleaved, bool source_interleaved) {
  std::unique_ptr<Epilogue> e(new Epilogue);
  const Operand& result = calls[convolution].operands[0];
  e->source_interleaved_ = source_interleaved;
  if (interleaved) {
    e->interleaving_ = interleaving_of(result);
    e->whole_.resize(slots.size());
    e->partial_.resize(slots.size());
  }
  e->convolution_ = convolution;
  e->call_ = &calls[convolution];
  e->slots_ = &slots;
  e->images_ = result.sizes[kImage];
  e->channels_ = result.sizes[kChannel];
  e->positions_ = 1;
  for (int d = kPosition; d < result.ndim; ++d) e->positions_ *= result.sizes[d];
  Operand flat;
  if (e->positions_ < kLeastPositions || !e->flatten(result.sizes, result.ndim, result, flat) ||
      !e->fills_its_storage(flat))
    return nullptr;
  e->calls_.resize(members.size());
  for (size_t i = 0; i < members.size(); ++i)
    if (!e->take(calls[members[i]], e->calls_[i])) return nullptr;
  for (size_t s = 0; s < slots.size() && interleaved; ++s)
    if (e->partial_[s] && (e->whole_[s] || slots[s].interleaved)) return nullptr;
  if (!e->writes_only_fresh_memory()) return nullptr;
  for (const Norm& norm : e->norms_)
    for (const Operand* o : {&norm.weight, &norm.bias, &norm.mean, &norm.variance})
      if (!in_memory[o->slot]) return nullptr;

  const size_t all = slots.size() + 2 * e->norms_.size();
  std::vector<char> asked_for(in_memory), in_registers(all);
  asked_for.resize(all, 1);
  std::vector<int> indices(members.size());
  for (size_t i = 0; i < members.size(); ++i) indices[i] = static_cast<int>(i);
  e->order_ = schedule(indices, e->calls_.data(), static_cast<int>(all));
  e->units_ = make_units(e->order_, e->calls_.data(), {1, interleaved ? e->positions_ : e->channels_}, asked_for,
                         e->segments_, in_registers, 1);
  e->join_silus(asked_for, in_registers);
  if (!e->keeps_what_is_reduced(asked_for) || !e->find_homes(asked_for, in_registers)) return nullptr;
  for (const Call& call : e->calls_)
    for (int k = 0; k < call.noperands; ++k)
      if (const Operand& o = call.operands[k];
          o.storage && o.slot < static_cast<int>(slots.size()) && e->home_[o.slot] < 0 && !in_registers[o.slot])
        return nullptr;
  e->slots_ = nullptr;
  return e;
}

// A block may be computed twice, and while the convolution still reads its operands. So members write fresh memory
// only, and each block uses its own part of it. Memory is fresh if no member reads what it held before: calls of other
// groups may have written it, and the convolution's result may lie there first.
bool Epilogue::writes_only_fresh_memory() const {
  const std::vector<Slot>& slots = *slots_;
  const int result = call_->operands[0].slot;
  std::vector<int> writers(slots.size());  // by slot: how many members write it
  std::vector<char> reduced(slots.size()), read_first(slots.size());
  for (const Call& call : calls_) {
    const int slot = call.operands[0].slot;
    for (int k = 1; k < call.noperands; ++k)
      if (const Operand& o = call.operands[k]; o.storage && o.slot < static_cast<int>(slots.size()))
        read_first[o.slot] |= writers[o.slot] == 0 && o.slot != result;
    if (reads(slot) || read_first[slot] || (is_pointwise(call) && !is_promised(slots[slot]))) return false;
    ++writers[slot];
    if (!is_pointwise(call)) reduced[slot] = 1;
  }
  for (const Call& call : calls_)
    for (int k = 0; k < call.noperands; ++k) {
      const Operand& o = call.operands[k];
      if (!o.storage || o.slot >= static_cast<int>(slots.size())) continue;
      if (reduced[o.slot] && (is_pointwise(call) || k > 0 || writers[o.slot] > 1)) return false;
      if (is_pointwise(call) && (writers[o.slot] > 0 || o.slot == result) && !fills_its_storage(o)) return false;
    }
  for (const Norm& norm : norms_)
    for (const Operand* o : {&norm.weight, &norm.bias, &norm.mean, &norm.variance})
      if (writers[o->slot] > 0) return false;
  return true;
}

// Sets reduces_. A reduction may run after all blocks are computed: what it reads must be in memory then, with the
// values that it had in the order of the calls.
bool Epilogue::keeps_what_is_reduced(const std::vector<char>& in_memory) {
  for (size_t i = 0; i < order_.size(); ++i) {
    const Call& reduction = calls_[order_[i]];
    if (is_pointwise(reduction)) continue;
    reduces_ = true;
    const int read = reduction.operands[1].slot;
    if (!in_memory[read]) return false;
    for (size_t later = i + 1; later < order_.size(); ++later)
      if (calls_[order_[later]].operands[0].slot == read) return false;
  }
  return true;
}

// A norm and the silu that is all that reads it become one pass: a pass over the block for the norm alone costs several
// times what its product and sum do.
void Epilogue::join_silus(const std::vector<char>& asked_for, std::vector<char>& in_registers) {
  for (size_t u = 0; u + 1 < units_.size(); ++u) {
    if (units_[u].count != 1 || units_[u + 1].count != 1) continue;
    Call& norm = calls_[order_[units_[u].first]];
    const Call& silu = calls_[order_[units_[u + 1].first]];
    const int between = norm.operands[0].slot;
    if (norm.noperands != 4 || norm.operands[1].slot < static_cast<int>(slots_->size()) || asked_for[between] ||
        std::string_view(silu.name) != "silu" || silu.operands[1].slot != between ||
        silu.operands[0].dtype != DType::Float32)
      continue;
    const auto uses = std::count_if(calls_.begin(), calls_.end(), [&](const Call& call) {
      return std::any_of(call.operands, call.operands + call.noperands,
                         [&](const Operand& o) { return o.storage && o.slot == between; });
    });
    if (uses != 2) continue;
    norm.operands[0] = silu.operands[0];
    set_kernel(norm, silu_of_line);
    in_registers[between] = 1;
    if (const int segment = units_[u].segment; segment >= 0) {
      segments_.erase(segments_.begin() + segment);
      for (Unit& unit : units_) unit.segment -= unit.segment > segment;
    }
    units_[u] = {units_[u].first, 2};
    units_.erase(units_.begin() + static_cast<std::ptrdiff_t>(u) + 1);
  }
}

bool Epilogue::take_factors(int index, const Call* calls, const std::vector<Slot>& slots,
                            const std::vector<char>& in_memory) {
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
  // The numbers themselves are in their own order.
  if (slots[factors.slot].interleaved) return false;
  if (slots[source.slot].interleaved) {
    if (slots[source.slot].interleaved != interleaving_of(in)) return false;
    source_interleaved_ = true;
  }
  product_ = index;
  source_ = &source;
  factors_ = &factors;
  return true;
}

// A norm runs by another kernel, whose numbers stay. Numbers of machine code are part of the plan.
void Epilogue::take_numbers(const std::vector<int>& members, const Call* calls) {
  size_t norm = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const Call& from = calls[members[i]];
    if (is_norm(from)) {
      norms_[norm++].eps = eps_of(from);
    } else {
      recording::take_numbers(calls_[i], from);
    }
  }
}

int Epilogue::unit_of(int position) const {
  int u = 0;
  while (position >= units_[u].first + units_[u].count) ++u;
  return u;
}

// Whether slot `later` can be written over slot `earlier`: each element of the earlier one must have been read before.
// Within a segment an element is loaded by the first call that reads it.
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

// Gives memory to slots that nobody outside asks for. They all lie in the memory of one result that is asked for: each
// stays there until the next one is written over it. False where there is no such result.
bool Epilogue::find_homes(const std::vector<char>& in_memory, const std::vector<char>& in_registers) {
  const int slots = static_cast<int>(slots_->size()), result = call_->operands[0].slot;
  home_.assign(slots, -1);
  for (int s = 0; s < slots; ++s)
    if (in_memory[s]) home_[s] = s;
  std::vector<int> chain, targets;  // slots without and with memory, in the order in which they are written
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
    if (from == 1) {  // a second attempt, in which the convolution's result has memory of its own
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

}  // namespace mica::recording
