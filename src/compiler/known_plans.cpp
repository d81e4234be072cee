#include "compiler/known_plans.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compiler/code.h"
#include "compiler/fused_norms.h"
#include "core/recorded_convolution.h"
#include "mica/core/recording.h"
#include "mica/parallel.h"

namespace mica::recording {

namespace {

constexpr size_t kMostBytes = size_t{16} << 20;  // of all plans that a thread keeps
constexpr size_t kSeen = 1024;
// The words of a call in a key, at most.
constexpr size_t kCallWords = 4 + kDims + 5 + kOperands * (3 + 2 * kDims);

template <class... T>
uint64_t packed(T... bytes) {
  uint64_t word = 0;
  ((word = word << 8 | static_cast<uint8_t>(bytes)), ...);
  return word;
}

uint64_t* write_operand(uint64_t* to, const Operand& o, int ndim, bool has_sizes) {
  *to++ = static_cast<uint64_t>(o.storage ? o.slot + 1 : 0) << 8 | static_cast<uint8_t>(o.dtype);
  if (!o.storage) return to;
  *to++ = static_cast<uint64_t>(o.offset);
  for (int d = 0; d < ndim; ++d) *to++ = static_cast<uint64_t>(o.strides[d]);
  for (int d = 0; d < ndim && has_sizes; ++d) *to++ = static_cast<uint64_t>(o.sizes[d]);
  return to;
}

uint64_t* write_call(uint64_t* to, const Call& call) {
  *to++ = reinterpret_cast<uintptr_t>(call.name);
  *to++ = packed(call.form, call.ndim, call.noutputs, call.noperands, call.dtype, call.result_dtype, call.device.type(),
                 call.device.index());
  if (call.form == Call::Form::Norm) {
    const auto& a = *reinterpret_cast<const NormArguments*>(call.arguments);
    *to++ = static_cast<uint64_t>(a.rows);
    *to++ = static_cast<uint64_t>(a.count);
    *to++ = std::bit_cast<uint64_t>(a.eps);
    *to++ = packed(a.centred, a.backward, a.out, a.mean, a.rstd, a.grad_weight, a.grad_bias, a.grad);
    *to++ = packed(a.input, a.weight, a.bias);
    for (int k = 0; k < call.noperands; ++k) {
      *to++ = static_cast<uint64_t>(call.operands[k].ndim);
      to = write_operand(to, call.operands[k], call.operands[k].ndim, true);
    }
    return to;
  }
  const FusedInstruction& step = call.step;
  *to++ = packed(step.code >> 8, step.code, step.inputs > 0 ? step.in[0] : 0, step.inputs > 1 ? step.in[1] : 0,
                 step.inputs > 2 ? step.in[2] : 0, step.inputs, step.dtype, is_plain_sum(call));
  for (int d = 0; d < call.ndim; ++d) *to++ = static_cast<uint64_t>(call.shape[d]);
  for (int k = 0; k < call.noperands; ++k) to = write_operand(to, call.operands[k], call.ndim, false);
  return to;
}

// A call of the CPU. Machine code is made for simple kernels, and their numbers are part of the plan.
uint64_t* write_cpu_call(uint64_t* to, const Call& call) {
  *to++ = reinterpret_cast<uintptr_t>(call.name);
  *to++ = packed(call.form, call.ndim, call.noutputs, call.noperands, call.dtype, call.result_dtype);
  if (call.form == Call::Form::Rows) {
    *to++ = reinterpret_cast<uintptr_t>(call.run_rows);
    for (int d = 0; d < call.ndim; ++d) *to++ = static_cast<uint64_t>(call.shape[d]);
    for (int k = 0; k < call.noperands; ++k) {
      *to++ = static_cast<uint64_t>(call.operands[k].ndim);
      to = write_operand(to, call.operands[k], call.operands[k].ndim, true);
    }
    return to;
  }
  const bool simple = is_simple(call);
  double factor = 0;
  if (simple && factor_of(call, factor)) *to++ = std::bit_cast<uint64_t>(factor);
  for (int d = 0; d < call.ndim; ++d) *to++ = static_cast<uint64_t>(call.shape[d]);
  for (int k = 0; k < call.noperands; ++k) {
    const Operand& o = call.operands[k];
    to = write_operand(to, o, call.ndim, false);
    if (o.storage || !simple) continue;
    uint64_t number = 0;
    std::memcpy(&number, o.number, std::min<size_t>(sizeof number, static_cast<size_t>(element_size(o.dtype))));
    *to++ = number;
  }
  return to;
}

uint64_t hash_of(const uint64_t* words, size_t count) {
  uint64_t hash = count;
  for (size_t i = 0; i < count; ++i) {
    hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

KnownPlan::KnownPlan(const Call* calls, int count, const std::vector<Slot>& slots)
    : calls_(new Call[static_cast<size_t>(count)]), count_(count), slots_(slots.size()) {
  std::copy(calls, calls + count, calls_.get());
  if (calls[0].device.is_cpu()) {
    const std::unique_ptr<Call[]> with_room(new Call[static_cast<size_t>(count + kMostHalves)]);
    std::copy(calls, calls + count, with_room.get());
    if (Plan(with_room.get(), count, kMostHalves, slots).made_halves()) return;
    plan_ = std::make_unique<Plan>(calls_.get(), count, 0, slots);
    needed_ = plan_->needed();
    dead_ = plan_->dead();
    for (int s = 0; s < static_cast<int>(slots.size()); ++s)
      if (plan_->last_use(s) >= 0 && plan_->in_memory(s)) stored_.push_back(s);
    run_alone_.resize(static_cast<size_t>(count), 1);
    return;
  }
  needed_ = Plan::find_needed(calls_.get(), count, slots);
  dead_ = static_cast<int>(std::count(needed_.begin(), needed_.end(), false));
  fused_ = std::make_unique<FusedPlan>(calls_.get(), count, slots, needed_);
  run_alone_ = fused_->run_alone(calls_.get(), count);
  for (int s = 0; s < static_cast<int>(slots.size()); ++s)
    if (fused_->uses(s) && fused_->in_memory(s)) stored_.push_back(s);
}

KnownPlan::~KnownPlan() = default;

// What most of its memory is: the calls, the key, and on the CPU how each group uses each slot.
size_t KnownPlan::bytes() const {
  const size_t uses = plan_ ? plan_->grouping().groups().size() * (sizeof(Partition) + 2) * slots_ : 0;
  const size_t epilogues = plan_ ? plan_->bytes_of_epilogues() : 0;
  return static_cast<size_t>(count_) * sizeof(Call) + key_.size() * sizeof(uint64_t) + uses + epilogues;
}

void KnownPlan::take_numbers(const Call* calls) {
  for (int c = 0; c < count_; ++c)
    if (run_alone_[c]) {
      recording::take_numbers(calls_[c], calls[c]);
    } else {
      take_numbers_of_step(calls_[c], calls[c]);
    }
  // A convolution knows its weight by the storage, too: what was made of it is kept there.
  for (int c = 0; c < count_ && plan_; ++c)
    if (is_convolution(calls_[c]))
      calls_[c].operands[kConvolutionWeight].storage = calls[c].operands[kConvolutionWeight].storage;
  if (fused_) fused_->take_numbers();
  if (plan_) plan_->take_numbers_of_epilogues(calls_.get());
}

// False where a call is of a kind whose plans are not kept: what only graphs that are captured put off.
bool KnownPlans::write_key(const Call* calls, int count, const std::vector<Slot>& slots) {
  const size_t most = static_cast<size_t>(count) * kCallWords + 2 * slots.size() + 4;
  if (most > room_) {
    room_ = 2 * most;
    key_.reset(new uint64_t[room_]);
  }
  uint64_t* to = key_.get();
  *to++ = static_cast<uint64_t>(count) << 32 | slots.size();
  const bool on_cpu = calls[0].device.is_cpu();
  *to++ = on_cpu ? static_cast<uint64_t>(get_num_threads()) << 1 | generates_code() : 0;
  bool convolves = false;
  for (int c = 0; c < count; ++c) {
    const Call& call = calls[c];
    if (call.device.is_cpu() != on_cpu) return false;
    if (call.form != Call::Form::Loop && call.form != (on_cpu ? Call::Form::Rows : Call::Form::Norm)) return false;
    convolves |= is_convolution(call);
    to = on_cpu ? write_cpu_call(to, call) : write_call(to, call);
  }
  uint64_t wanted = 0;
  for (size_t s = 0; s < slots.size(); ++s) {
    wanted = wanted << 1 | (!is_dead(slots[s]) || !is_promised(slots[s]));
    if (s % 64 != 63 && s + 1 != slots.size()) continue;
    *to++ = wanted;
    wanted = 0;
  }
  // What follows a convolution runs on its blocks only in fresh memory that it fills.
  for (size_t s = 0; s < slots.size() && convolves; ++s)
    *to++ = static_cast<uint64_t>(slots[s].storage->nbytes()) << 1 | is_promised(slots[s]);
  words_ = static_cast<size_t>(to - key_.get());
  return true;
}

bool KnownPlans::has_key(const KnownPlan& plan) const {
  return plan.key_.size() == words_ && std::memcmp(plan.key_.data(), key_.get(), words_ * sizeof(uint64_t)) == 0;
}

KnownPlan* KnownPlans::look_up(const Call* calls, int count, const std::vector<Slot>& slots) {
  const uint64_t hash = hash_of(key_.get(), words_);
  const auto [begin, end] = plans_.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (has_key(*at->second)) return at->second.get();
  seen_.resize(kSeen);
  if (seen_[hash % kSeen] != hash) {
    seen_[hash % kSeen] = hash;
    return nullptr;
  }
  auto made = std::make_unique<KnownPlan>(calls, count, slots);
  made->key_.assign(key_.get(), key_.get() + words_);
  const size_t bytes = made->bytes();
  if (bytes_ + bytes > kMostBytes) {  // plans that are needed are made again soon
    plans_.clear();
    bytes_ = 0;
    last_ = nullptr;
  }
  bytes_ += bytes;
  return plans_.emplace(hash, std::move(made))->second.get();
}

const KnownPlan* KnownPlans::find(const Call* calls, int count, const std::vector<Slot>& slots) {
  if ((least_fused <= 1 && !calls[0].device.is_cpu()) || !write_key(calls, count, slots)) return nullptr;
  KnownPlan* plan = last_ ? last_->next_ : nullptr;
  if (!plan || !has_key(*plan)) {
    plan = look_up(calls, count, slots);
    if (last_) last_->next_ = plan;
  }
  last_ = plan;
  if (!plan || !plan->usable()) return nullptr;
  plan->take_numbers(calls);
  return plan;
}

}  // namespace mica::recording
