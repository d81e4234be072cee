#include "compiler/fused_norms.h"

#include <string_view>
#include <tuple>

#include "mica/core/scalar.h"

namespace mica::recording {

bool is_plain_sum(const Call& call) {
  if (call.form != Call::Form::Loop || call.name[0] != 'a' || std::string_view(call.name) != "add") return false;
  const auto& [alpha] = *reinterpret_cast<const std::tuple<Scalar>*>(call.arguments);
  return alpha == Scalar(1) || alpha == Scalar(1.0);
}

namespace {

bool is_narrow(DType t) { return t == DType::Float16 || t == DType::BFloat16; }

bool is_conversion(const Call& call, int64_t count) {
  return call.form == Call::Form::Loop && std::string_view(call.name) == "copy" && is_dense(call, 0, count) &&
         is_dense(call, 1, count);
}

bool is_sum(const Call& call, int64_t count) {
  if (!is_plain_sum(call) || call.noperands != 3) return false;
  for (int k = 0; k < 3; ++k)
    if (!is_dense(call, k, count)) return false;
  return call.operands[0].dtype == DType::Float32;
}
}  // namespace

// Whether a call uses the storage of an operand.
static bool uses(const Call& call, const Operand& o) {
  for (int k = 0; k < call.noperands; ++k)
    if (call.operands[k].slot == o.slot) return true;
  return false;
}

const Operand& NormChain::result() const { return sum_ ? sum_->operands[0] : operand(arguments().out); }

// Whether a dtype of 16 bits is that of the calls that the norm has: a kernel knows one such dtype.
bool NormChain::agrees(DType narrow) const {
  if (!is_narrow(narrow)) return false;
  for (const Call* call : {before_, narrow_})
    for (int k = 0; call && k < call->noperands; ++k)
      if (is_narrow(call->operands[k].dtype) && call->operands[k].dtype != narrow) return false;
  return true;
}

bool NormChain::take_before(const Call& call) {
  const NormArguments& a = arguments();
  const int64_t count = a.rows * a.count;
  if (before_) return false;
  if (a.backward) {
    if (!is_conversion(call, count) || !agrees(call.operands[1].dtype) ||
        !same_place(call.operands[0], operand(a.grad)) || uses(*norm_, call.operands[1]))
      return false;
  } else {
    if (!is_sum(call, count) || !same_place(call.operands[0], operand(a.input))) return false;
    const int wide = call.operands[1].dtype == DType::Float32 ? 1 : 2, other = 3 - wide;
    const DType dtype = call.operands[other].dtype;
    if (call.operands[wide].dtype != DType::Float32 || !(dtype == DType::Float32 || agrees(dtype))) return false;
    // A term may lie exactly where the sum is written. Otherwise the norm must not use its storage.
    for (const int k : {1, 2})
      if (uses(*norm_, call.operands[k]) && !same_place(call.operands[k], call.operands[0])) return false;
    other_ = other;
  }
  before_ = &call;
  return true;
}

bool NormChain::take_after(const Call& call) {
  const NormArguments& a = arguments();
  const int64_t count = a.rows * a.count;
  if (narrow_) return false;
  if (is_conversion(call, count)) {
    if (!same_place(call.operands[1], result()) || !agrees(call.operands[0].dtype) || uses(*norm_, call.operands[0]))
      return false;
    for (const Call* taken : {before_, sum_})
      if (taken && uses(*taken, call.operands[0])) return false;
    narrow_ = &call;
    return true;
  }
  if (!a.backward || sum_ || !is_sum(call, count)) return false;
  const int own = same_place(call.operands[1], result()) ? 1 : 2, other = 3 - own;
  if (!same_place(call.operands[own], result()) || call.operands[other].dtype != DType::Float32 ||
      uses(*norm_, call.operands[other]))
    return false;
  const Operand& to = call.operands[0];
  if (!same_place(to, result()) && !same_place(to, call.operands[other]) &&
      (uses(*norm_, to) || to.slot == call.operands[other].slot))
    return false;
  if (before_ && (uses(*before_, to) || uses(*before_, call.operands[other]))) return false;
  other_ = other;
  sum_ = &call;
  return true;
}

bool NormChain::fits(const std::vector<char>& in_memory) const {
  const NormArguments& a = arguments();
  if (a.backward && before_ && in_memory[operand(a.grad).slot]) return false;
  const int own = operand(a.out).slot;
  return !sum_ || sum_->operands[0].slot == own || !in_memory[own];
}

void NormChain::run(const std::vector<Slot>& slots, const std::vector<char>& in_memory) const {
  const NormArguments& a = arguments();
  const auto address = [&](const Operand& o) -> char* {
    return in_memory[o.slot] ? static_cast<char*>(slots[o.slot].storage->address()) + o.offset : nullptr;
  };
  const auto floats = [&](int8_t k) { return k < 0 ? nullptr : reinterpret_cast<float*>(address(operand(k))); };
  const auto narrow = [&](auto& to) {
    if (!narrow_) return;
    to.narrow = address(narrow_->operands[0]);
    to.narrow_dtype = narrow_->operands[0].dtype;
  };
  const Fusion& fusion = *fusion_of(norm_->device);
  if (!a.backward) {
    FusedNorm norm{};
    norm.device = norm_->device;
    norm.rows = a.rows;
    norm.count = a.count;
    norm.eps = a.eps;
    norm.centred = a.centred;
    norm.input = floats(a.input);
    if (before_) {
      norm.sum = floats(a.input);
      norm.input = reinterpret_cast<const float*>(address(before_->operands[3 - other_]));
      norm.added = address(before_->operands[other_]);
      norm.added_dtype = before_->operands[other_].dtype;
    }
    norm.weight = floats(a.weight);
    norm.bias = floats(a.bias);
    norm.mean = floats(a.mean);
    norm.rstd = floats(a.rstd);
    norm.out = floats(a.out);
    narrow(norm);
    return fusion.run_norm(norm);
  }
  FusedNormGradient norm{};
  norm.device = norm_->device;
  norm.rows = a.rows;
  norm.count = a.count;
  norm.grad = before_ ? address(before_->operands[1]) : reinterpret_cast<char*>(floats(a.grad));
  norm.grad_dtype = before_ ? before_->operands[1].dtype : DType::Float32;
  norm.input = floats(a.input);
  norm.mean = floats(a.mean);
  norm.rstd = floats(a.rstd);
  norm.weight = floats(a.weight);
  norm.grad_weight = floats(a.grad_weight);
  norm.grad_bias = floats(a.grad_bias);
  if (sum_) norm.added = reinterpret_cast<const float*>(address(sum_->operands[other_]));
  norm.grad_input = reinterpret_cast<float*>(address(result()));
  narrow(norm);
  fusion.run_norm_gradient(norm);
}

}  // namespace mica::recording
