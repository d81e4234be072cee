// The outputs of pointwise operations: new tensors, in place, and out=.
#include <algorithm>

#include "core/allocate.h"
#include "core/entry.h"
#include "core/expanded.h"
#include "core/geometry.h"
#include "core/observe.h"
#include "core/out.h"
#include "core/pointwise.h"
#include "mica/ops.h"

namespace mica {

// For an output whose layout differs from that of the inputs, which are alike.
void PointwisePlan::give_up_alike() {
  if (alike_) general_.emplace().shape.assign(lead_->sizes());
  flat_ = alike_ = false;
}

// Whether the strides of dimensions of size one are other than they must be. As in torch, dense tensors that all lie
// alike give them to the result, unless they are contiguous in one of the usual formats.
static bool keeps_strides(const Tensor& t) {
  return std::find(t.sizes().begin(), t.sizes().end(), 1) != t.sizes().end() && !t.is_contiguous() &&
         !t.is_contiguous(MemoryFormat::ChannelsLast) && is_non_overlapping_and_dense(t.sizes(), t.strides());
}

Tensor PointwisePlan::allocate_output(DType dtype) {
  if (flat_ || shape().empty()) return empty_contiguous(shape(), dtype, device_, deferred_);
  const DimVector& shape = general_->shape;
  bool alike = true;
  for (int i = 0; i < ninputs_ && alike; ++i)
    alike = operands_[i].tensor && operands_[i].tensor->sizes() == shape.ref() &&
            operands_[i].tensor->strides() == lead_->strides();
  if (alike && keeps_strides(*lead_)) return empty_with_strides(shape, lead_->strides(), dtype, device_);
  if (general_->permutation.empty()) compute_permutation();
  DimVector strides(shape.size());
  int64_t next = 1;
  for (int64_t d : general_->permutation) {
    strides[d] = next;
    next *= std::max<int64_t>(shape[d], 1);
  }
  return empty_with_strides(shape, strides, dtype, device_, deferred_);
}

Tensor PointwisePlan::fresh(int output) {
  resolve();
  const DType dtype = output == 0 || forced_result_ == DType::Undefined ? result_ : forced_result_;
  Tensor made = alike_ ? empty_contiguous(lead_->sizes(), dtype, device_, deferred_) : allocate_output(dtype);
  outputs_[output] = made.impl();
  return made;
}

void PointwisePlan::in_place(const Tensor& self) {
  MICA_CHECK(op_.promotion != Promotion::Real || !self.is_complex(), "In-place ", op_.name,
             " is not supported for complex tensors.");
  resolve();
  MICA_CHECK(shape() == self.sizes(), "output with shape ", self.sizes(), " doesn't match the broadcast shape ",
             shape(), ": ", op_.name, "_ cannot change the shape of self");
  if (alike_ && result_ == self.dtype() && lead_->is_same(self)) {
    // Inputs are contiguous and have self's shape. An input that shares self's storage is self again, or lies elsewhere
    // in it.
    bool apart = true;
    for (int i = 0; i < ninputs_; ++i) {
      const Tensor* t = operands_[i].tensor;
      apart &= !t || t->is_same(self) || !(t->storage() == self.storage());
    }
    if (apart) {
      outputs_[0] = self.impl();  // checked above, since it is an input too
      return;
    }
  }
  MICA_CHECK(can_cast(result_, self.dtype()), "result type ", info(result_).legacy,
             " can't be cast to the desired output type ", info(self.dtype()).legacy);
  into(self, 0);
}

// For these operations torch does not convert the result into the given out=.
[[gnu::cold]] static void check_exact_output(const std::string_view op, DType out, DType result, DType common,
                                             bool one_tensor) {
  for (const std::string_view exact :
       {"neg", "floor", "ceil", "trunc", "round", "sign", "sgn", "abs", "bitwise_not", "_conj_physical", "frac"})
    MICA_CHECK(op != exact || out == common, "Found dtype ", info(out).legacy, " but expected ", info(common).legacy);
  for (const std::string_view bounded : {"_clamp", "clamp_min", "clamp_max"})  // by numbers
    MICA_CHECK(!one_tensor || op != bounded, "Found dtype ", info(out).legacy, " but expected ", info(result).legacy);
  for (const std::string_view truth : {"isposinf", "isneginf", "signbit"})
    MICA_CHECK(op != truth, op, " does not support non-boolean outputs.");
  MICA_CHECK(op != "nan_to_num", "nan_to_num: dtype of out: ", info(out).legacy,
             " should be same as input: ", info(result).legacy);
  MICA_CHECK(op != "complex" && op != "polar", "Expected object of scalar type ", info(result).legacy,
             " but got scalar type ", info(out).legacy, " for argument 'out'");
}

// Operations that torch lets write to the elements of an expanded tensor more than once.
static bool writes_repeatedly(const std::string_view op) { return op.ends_with("threshold"); }

void PointwisePlan::into(const Tensor& out, int output) {
  resolve();
  given_[output] = &out;
  if (deferred_ && (!out.storage() || !out.storage()->resizable())) deferred_ = false;
  MICA_CHECK(out.device() == device_, "Expected all tensors to be on the same device, but found at least two devices, ",
             device_, " and ", out.device(), "! (out of ", op_.name, ")");
  if (out.dtype() != result_) [[unlikely]] {
    check_exact_output(op_.name, out.dtype(), result_, common_, ninputs_ > 1 && operands_[1].number);
    MICA_CHECK(can_cast(result_, out.dtype()), "result type ", info(result_).legacy,
               " can't be cast to the desired output type ", info(out.dtype()).legacy);
  }
  const bool fits = shape() == out.sizes();
  bool direct = out.dtype() == result_ && fits && !(out.impl()->bits & tensor_bit::kLazyBits);
  if (fits && out.numel() > 1) {
    const bool masked = op_.name == std::string_view("masked_fill");
    if (masked)
      direct = !warn_if_expanded("masked_fill_", out) && direct;
    else if (!writes_repeatedly(op_.name))
      check_no_internal_overlap(op_.name, out);
    for (int i = 0; i < ninputs_; ++i) {
      const Tensor* t = operands_[i].tensor;
      if (!t || !direct || !may_share_memory(*t, out)) continue;
      const bool same =
          t->storage_offset() == out.storage_offset() && t->sizes() == out.sizes() && t->strides() == out.strides();
      if (same) continue;
      // Two tensors that cover the same memory without gaps share it by mistake; a part of a larger tensor may share it
      // on purpose. The one value of masked_fill_ is read before anything is written.
      MICA_CHECK((masked && t->dim() == 0) || !t->is_non_overlapping_and_dense() || !out.is_non_overlapping_and_dense(),
                 "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                 "memory location. "
                 "Please clone() the tensor before performing the operation.");
      direct = false;
    }
  }
  if (direct) {
    if (!out.impl()->contiguous) give_up_alike();
    outputs_[output] = out.impl();
  } else {
    temporaries_[output] = allocate_output(result_);
    outputs_[output] = temporaries_[output].impl();
  }
}

// Writes a result to an expanded tensor. Where repetitions of one element differ, one that was changed wins. An
// operation that may do this writes one value everywhere, or the same value to all repetitions.
[[gnu::cold]] static void write_expanded(const Tensor& out, const Tensor& result) {
  NoGradGuard below;
  DimVector sizes(out.sizes()), repeated;
  for (int64_t d = 0; d < out.dim(); ++d) {
    if (out.strides()[d] != 0 || sizes[d] < 2) continue;
    sizes[d] = 1;
    repeated.push_back(d);
  }
  const Tensor changed = result.ne(out);
  const Tensor once = out.detach().as_strided(sizes, out.strides(), out.storage_offset());
  Tensor here = changed, last = result;
  for (const int64_t d : repeated) {
    const Tensor at = here.to(DType::UInt8).argmax(d, true);
    last = last.gather(d, at);
    here = here.gather(d, at);
  }
  once.copy_(where(here, last, once));
}

void PointwisePlan::finish() {
  for (int i = 0; i < op_.noutputs; ++i) {
    if (!temporaries_[i].defined()) continue;
    std::vector<Tensor> inputs;
    for (int k = 0; k < ninputs_ && (thread_modes & mode_bit::kObserve); ++k)
      if (operands_[k].tensor) inputs.push_back(*operands_[k].tensor);
    inspect::BecauseOf overlap(*given_[i], inputs);
    const UncountedSteps steps(*given_[i]);
    const bool repeats = op_.name == std::string_view("masked_fill") || writes_repeatedly(op_.name);
    if (repeats && !given_[i]->impl()->contiguous && given_[i]->sizes() == temporaries_[i].sizes() &&
        has_internal_overlap(given_[i]->sizes(), given_[i]->strides())) {
      write_expanded(*given_[i], temporaries_[i]);
      continue;
    }
    write_out(op_.name, *given_[i], temporaries_[i], true);
  }
}

}  // namespace mica
