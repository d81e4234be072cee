#include "compiler/fused.h"

#include <algorithm>
#include <memory>

#include "mica/backend.h"
#include "mica/core/recording.h"
#include "mica/error.h"

namespace mica::recording {

FusedGroup::FusedGroup(const Call& first) : calls_{&first} {
  if (first.form == Call::Form::Norm && first.dtype == DType::Float32) norm_.emplace(first);
  if (first.form == Call::Form::Product) products_.emplace(first);
  note(first, uses_);
}

bool FusedGroup::uses(int slot) const {
  return std::any_of(uses_.begin(), uses_.end(), [slot](const Use& u) { return u.slot == slot; });
}

bool FusedGroup::writes(int slot) const {
  return std::any_of(uses_.begin(), uses_.end(), [slot](const Use& u) { return u.slot == slot && u.written; });
}

// Whether two accesses are the two halves of the same rows: they have no element in common.
static bool are_halves(const Access& a, const Access& b, const Call& call) {
  const int last = call.ndim - 1;
  if (last < 0 || a.dtype != b.dtype || a.index != b.index || a.index_offset != b.index_offset || a.place != b.place ||
      !std::equal(a.strides, a.strides + call.ndim, b.strides))
    return false;
  const int64_t apart = a.offset < b.offset ? b.offset - a.offset : a.offset - b.offset;
  if (a.strides[last] <= 0 || apart != call.shape[last] * a.strides[last]) return false;
  for (int d = 0; d < last; ++d)
    if (a.strides[d] % (2 * apart)) return false;
  return true;
}

// Adds the uses of a call. Returns false where the calls would write a storage and reach it in two ways that may have
// elements in common: then they are not one loop.
bool FusedGroup::note(const Call& call, std::vector<Use>& uses) const {
  bool alike = true;
  for (int k = 0; k < call.noperands; ++k) {
    if (!call.operands[k].storage) continue;
    const int slot = call.operands[k].slot;
    const bool written = k < call.noutputs;
    const Access access = access_of(call, k);
    Use* same = nullptr;
    for (Use& u : uses) {
      if (u.slot != slot) continue;
      if (u.access == access) {
        same = &u;
      } else if ((u.written || written) && !are_halves(u.access, access, call)) {
        alike = false;
      }
    }
    if (same) {
      same->written |= written;
    } else {
      uses.push_back({slot, access, written});
    }
  }
  return alike;
}

bool FusedGroup::fits(const std::vector<char>& in_memory) const {
  if (norm_) return norm_->fits(in_memory);
  if (products_) return products_->fits(in_memory);
  if (!is_loop()) return true;
  // As many values as there are registers fit in any case. With more of them, it depends on when each is asked for.
  if (uses_.size() <= kFusedRegisters && 2 * calls_.size() + uses_.size() <= kFusedInstructions) return true;
  const auto written = std::make_unique<WrittenLoop>();
  return write_loop(*written, calls_, in_memory);
}

// Products of the same row run side by side, where none needs the result of another. A loop over their columns that
// reads a result follows.
bool FusedGroup::join_products(const Call& call, const std::vector<char>& stored) {
  if (call.form == Call::Form::Product) {
    // Of what the group writes, such a product may read the row alone: each block of the kernel normalises it.
    const int row = call.operands[1].slot;
    for (int k = 0; k < call.noperands; ++k)
      for (const Use& u : uses_)
        if (u.slot == call.operands[k].slot && (k == 0 || (u.written && u.slot != row))) return false;
    if (!products_->take_product(call)) return false;
    note(call, uses_);
    calls_.push_back(&call);
    return true;
  }
  if (!in_loop(call) || !precedes(call)) return false;
  const Call* flat = products_->take_tail(call);
  if (!flat) return false;
  const std::vector<Use> before = uses_;
  if (note(*flat, uses_) && products_->fits(stored)) {
    calls_.push_back(flat);
    return true;
  }
  uses_ = before;
  products_->give_back_tail();
  return false;
}

bool FusedGroup::may_overlap(const FusedGroup& earlier) const {
  if (calls_[0]->device != earlier.calls_[0]->device) return false;
  for (const int slot : products_->constants())
    for (const Use& u : earlier.uses_)
      if (u.slot == slot && u.written) return false;
  return true;
}

bool FusedGroup::absorb_loop(const FusedGroup& later, const std::vector<char>& stored) {
  if (!is_products() || !later.is_loop()) return false;
  for (const Use& u : later.uses_)
    for (const Use& own : uses_)
      if (u.slot == own.slot && (u.written || (own.written && !products_->computes(u.slot)))) return false;
  if (!products_->take_loops(later.calls_, stored)) return false;
  for (const Call* call : later.calls_) note(*call, uses_);
  calls_.insert(calls_.end(), later.calls_.begin(), later.calls_.end());
  return true;
}

bool FusedGroup::absorb(const FusedGroup& earlier) {
  if (earlier.calls_.size() != 1) return false;
  const Call& call = *earlier.calls_[0];
  if (norm_ ? !norm_->take_before(call) : !products_ || !products_->take_norm(call)) return false;
  note(call, uses_);
  calls_.insert(calls_.begin(), &call);
  return true;
}

bool FusedGroup::absorb_written_norm(const FusedGroup* groups, size_t count, const std::vector<char>& stored) {
  if (!products_) return false;
  std::vector<const Call*> calls;
  for (size_t g = 0; g < count; ++g) calls.insert(calls.end(), groups[g].calls_.begin(), groups[g].calls_.end());
  if (!products_->take_written_norm(calls, stored)) return false;
  for (const Call* call : calls) note(*call, uses_);
  calls_.insert(calls_.begin(), calls.begin(), calls.end());
  return true;
}

bool FusedGroup::join(const Call& call, const std::vector<char>& stored) {
  if (norm_) {
    if (!norm_->take_after(call)) return false;
    note(call, uses_);
    calls_.push_back(&call);
    return true;
  }
  if (products_) return join_products(call, stored);
  if (!is_loop() || !in_loop(call)) return false;
  const Call& first = *calls_[0];
  if (call.device != first.device || call.ndim != first.ndim ||
      !std::equal(call.shape, call.shape + call.ndim, first.shape))
    return false;
  const std::vector<Use> before = uses_;
  bool joined = note(call, uses_);
  if (joined) {
    calls_.push_back(&call);
    joined = fits(stored);
    if (!joined) calls_.pop_back();
  }
  if (!joined) uses_ = before;
  return joined;
}

bool FusedGroup::precedes(const Call& call) const {
  for (int k = 0; k < call.noperands; ++k) {
    if (!call.operands[k].storage) continue;
    for (const Use& u : uses_)
      if (u.slot == call.operands[k].slot && (u.written || k < call.noutputs)) return true;
  }
  return false;
}

bool FusedGroup::precedes(const FusedGroup& later) const {
  return std::any_of(later.calls_.begin(), later.calls_.end(), [this](const Call* call) { return precedes(*call); });
}

const FusedLoop* FusedGroup::write(const std::vector<Slot>& slots, const std::vector<char>& in_memory) const {
  if (!written_) {
    auto written = std::make_unique<WrittenLoop>();
    if (!write_loop(*written, calls_, in_memory)) return nullptr;
    written_ = std::move(written);
  }
  written_->fill_in(slots);
  return &written_->loop;
}

bool FusedGroup::run(const std::vector<Slot>& slots, const std::vector<char>& in_memory, const FusedGroup* before,
                     bool early) const {
  if (apart_) {
    for (const Call* call : calls_) FusedGroup(*call).run(slots, in_memory);
    return false;
  }
  if (products_) {
    products_->run(slots, in_memory, early);
    return false;
  }
  if (is_attention()) {
    const bool follows = before && before->is_products() && before->calls_[0]->device == calls_[0]->device;
    run_attention(*calls_[0], slots, follows ? find_new_keys(*calls_[0], before->calls_) : std::nullopt);
    return false;
  }
  if (calls_.size() == 1 && calls_[0]->form != Call::Form::Indexed) {
    run_alone(*calls_[0], slots);
    return false;
  }
  if (norm_) {
    norm_->run(slots, in_memory);
    return false;
  }
  const FusedLoop* loop = write(slots, in_memory);
  MICA_CHECK(loop, "a fused loop outgrew its registers");
  return fusion_of(loop->device)->run(*loop);
}

bool FusedGroup::is_short() const {
  if (apart_ || !(is_loop() || is_sum())) return false;
  int64_t count = 1;
  for (int d = 0; d < calls_[0]->ndim; ++d) count *= calls_[0]->shape[d];
  return is_sum() || count <= kFusedPartElements;
}

FusedSum FusedGroup::sum(const std::vector<Slot>& slots) const {
  const Call& call = *calls_[0];
  const auto address = [&](int k) {
    return reinterpret_cast<float*>(static_cast<char*>(slots[call.operands[k].slot].storage->address()) +
                                    call.operands[k].offset);
  };
  const Operand& row = call.operands[1];
  const int64_t count = row.sizes[row.ndim - 1];
  return {address(1), address(0), count, is_mean(call) ? static_cast<float>(count) : 1};
}

}  // namespace mica::recording
