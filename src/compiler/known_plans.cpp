#include "compiler/known_plans.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

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

// What a key is given to: words to write, or the words of a known plan to compare with.
class Writer {
 public:
  explicit Writer(uint64_t* to) : to_(to) {}
  void add(uint64_t word) { *to_++ = word; }
  static bool differs() { return false; }
  const uint64_t* end() const { return to_; }

 private:
  uint64_t* to_;
};
// To be asked after each call whether the words differ: from the first word that does, lengths may differ too.
class Comparison {
 public:
  explicit Comparison(const uint64_t* with) : with_(with) {}
  void add(uint64_t word) { difference_ |= *with_++ ^ word; }
  bool differs() const { return difference_ != 0; }

 private:
  const uint64_t* with_;
  uint64_t difference_ = 0;
};

// These are inlined, so that the place in the key stays in a register.
template <class Key>
[[gnu::always_inline]] inline void add_operand(Key& key, const Operand& o, int ndim) {
  key.add(static_cast<uint64_t>(o.storage ? o.slot + 1 : 0) << 8 | static_cast<uint8_t>(o.dtype));
  if (!o.storage) return;
  key.add(static_cast<uint64_t>(o.offset));
  for (int d = 0; d < ndim; ++d) key.add(static_cast<uint64_t>(o.strides[d]));
}

template <class Key>
[[gnu::always_inline]] inline void add_operands_of_rows(Key& key, const Call& call, bool contiguous) {
  for (int k = 0; k < call.noperands; ++k) {
    const Operand& o = call.operands[k];
    key.add(static_cast<uint64_t>(o.ndim));
    add_operand(key, o, contiguous ? 0 : o.ndim);
    for (int d = 0; d < o.ndim; ++d) key.add(static_cast<uint64_t>(o.sizes[d]));
  }
}

template <class Key>
[[gnu::always_inline]] inline void add_call(Key& key, const Call& call) {
  key.add(reinterpret_cast<uintptr_t>(call.name));
  key.add(packed(call.form, call.ndim, call.noutputs, call.noperands, call.dtype, call.result_dtype, call.device.type(),
                 call.device.index()));
  if (call.form == Call::Form::Norm) {
    const auto& a = *reinterpret_cast<const NormArguments*>(call.arguments);
    key.add(static_cast<uint64_t>(a.rows));
    key.add(static_cast<uint64_t>(a.count));
    key.add(std::bit_cast<uint64_t>(a.eps));
    key.add(packed(a.centred, a.backward, a.out, a.mean, a.rstd, a.grad_weight, a.grad_bias, a.grad));
    key.add(packed(a.input, a.weight, a.bias));
    return add_operands_of_rows(key, call, true);  // a norm is put off only if they are
  }
  const FusedInstruction& step = call.step;
  key.add(packed(step.code >> 8, step.code, step.inputs > 0 ? step.in[0] : 0, step.inputs > 1 ? step.in[1] : 0,
                 step.inputs > 2 ? step.in[2] : 0, step.inputs, step.dtype, is_plain_sum(call)));
  for (int d = 0; d < call.ndim; ++d) key.add(static_cast<uint64_t>(call.shape[d]));
  for (int k = 0; k < call.noperands; ++k) add_operand(key, call.operands[k], call.ndim);
}

// A call of the CPU. Machine code is made for simple kernels, and their numbers are part of the plan.
template <class Key>
[[gnu::always_inline]] inline void add_cpu_call(Key& key, const Call& call) {
  key.add(reinterpret_cast<uintptr_t>(call.name));
  key.add(packed(call.form, call.ndim, call.noutputs, call.noperands, call.dtype, call.result_dtype));
  if (call.form == Call::Form::Rows) {
    key.add(reinterpret_cast<uintptr_t>(call.run_rows));
    for (int d = 0; d < call.ndim; ++d) key.add(static_cast<uint64_t>(call.shape[d]));
    return add_operands_of_rows(key, call, false);
  }
  const bool simple = is_simple(call);
  double factor = 0;
  if (simple && factor_of(call, factor)) key.add(std::bit_cast<uint64_t>(factor));
  for (int d = 0; d < call.ndim; ++d) key.add(static_cast<uint64_t>(call.shape[d]));
  for (int k = 0; k < call.noperands; ++k) {
    const Operand& o = call.operands[k];
    add_operand(key, o, call.ndim);
    if (o.storage || !simple) continue;
    uint64_t number = 0;
    std::memcpy(&number, o.number, std::min<size_t>(sizeof number, static_cast<size_t>(element_size(o.dtype))));
    key.add(number);
  }
}

// Gives a key all that the plan of the calls depends on. False where the key differs, or where a call is of a kind
// whose plans are not kept: what only graphs that are captured put off.
template <class Key>
bool add_calls(Key& key, const Call* calls, int count, const std::vector<Slot>& slots) {
  const bool on_cpu = calls[0].device.is_cpu();
  key.add(static_cast<uint64_t>(count) << 32 | slots.size());
  key.add(on_cpu ? static_cast<uint64_t>(get_num_threads()) << 1 | generates_code() : 0);
  if (key.differs()) return false;
  // Which results somebody asks for: plans of the same calls often differ in this alone.
  uint64_t wanted = 0;
  for (size_t s = 0; s < slots.size(); ++s) {
    wanted = wanted << 1 | (!is_dead(slots[s]) || !is_promised(slots[s]));
    if (s % 64 != 63 && s + 1 != slots.size()) continue;
    key.add(wanted);
    wanted = 0;
  }
  if (key.differs()) return false;
  bool convolves = false;
  for (int c = 0; c < count; ++c) {
    const Call& call = calls[c];
    if (call.device.is_cpu() != on_cpu) return false;
    if (call.form != Call::Form::Loop && call.form != (on_cpu ? Call::Form::Rows : Call::Form::Norm)) return false;
    convolves |= on_cpu && is_convolution(call);
    on_cpu ? add_cpu_call(key, call) : add_call(key, call);
    if (key.differs()) return false;
  }
  // What follows a convolution runs on its blocks only in fresh memory that it fills.
  // Where an image lies interleaved, or is wanted so, counts as well.
  for (size_t s = 0; s < slots.size() && convolves; ++s) {
    const Interleaving& how = slots[s].interleaved;
    key.add(static_cast<uint64_t>(slots[s].storage->nbytes()) << 3 | packed(is_promised(slots[s])) << 2 |
            packed(slots[s].wanted) << 1 | packed(static_cast<bool>(how)));
    if (key.differs()) return false;
    if (!how) continue;
    key.add(static_cast<uint64_t>(how.channels));
    key.add(static_cast<uint64_t>(how.positions));
  }
  return !key.differs();
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
    run_alone_ = plan_->run_alone(count);
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
    if (plan_ || run_alone_[c]) {
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

bool KnownPlans::write_key(const Call* calls, int count, const std::vector<Slot>& slots) {
  const size_t most = static_cast<size_t>(count) * kCallWords + 4 * slots.size() + 4;
  if (most > room_) {
    room_ = 2 * most;
    key_.reset(new uint64_t[room_]);
  }
  Writer key(key_.get());
  if (!add_calls(key, calls, count, slots)) return false;
  words_ = static_cast<size_t>(key.end() - key_.get());
  return true;
}

bool KnownPlans::has_key(const KnownPlan& plan) const {
  return plan.words_ == words_ && std::memcmp(plan.key_.data(), key_.get(), words_ * sizeof(uint64_t)) == 0;
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
  // A comparison looks at the words of one call more than are the same.
  made->key_.assign(key_.get(), key_.get() + words_);
  made->key_.resize(words_ + kCallWords);
  made->words_ = words_;
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
  if (least_fused <= 1 && !calls[0].device.is_cpu()) return nullptr;
  KnownPlan* plan = nullptr;
  for (size_t i = 0; last_ && i < last_->next_.size() && !plan; ++i) {
    KnownPlan* next = last_->next_[i];
    if (!next) break;
    Comparison key(next->key_.data());
    if (!add_calls(key, calls, count, slots)) continue;
    plan = next;
    std::swap(last_->next_[0], last_->next_[i]);
  }
  if (!plan) {
    if (!write_key(calls, count, slots)) return nullptr;
    plan = look_up(calls, count, slots);
    if (last_ && plan) last_->next_ = {plan, last_->next_[0]};
  }
  last_ = plan;
  if (!plan || !plan->usable()) return nullptr;
  plan->take_numbers(calls);
  return plan;
}

}  // namespace mica::recording
