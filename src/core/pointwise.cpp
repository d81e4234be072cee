#include "core/pointwise.h"

#include <algorithm>
#include <cstring>

#include "core/allocate.h"
#include "core/dimension_order.h"
#include "core/geometry.h"
#include "core/out.h"
#include "core/scalar_bytes.h"
#include "mica/ops.h"

namespace mica {

// ---- promotion -----------------------------------------------------------------------------------------------------

namespace {

DType meet(DType a, DType b) {
  if (a == DType::Undefined) return b;
  if (b == DType::Undefined || a == b) return a;
  return promote_types(a, b);
}

// The lower rank contributes only if its category is higher.
DType combine_categories(DType higher, DType lower) {
  if (higher == DType::Undefined) return lower;
  if (lower == DType::Undefined) return higher;
  if (is_complex(higher)) return higher;
  if (is_floating(higher)) {
    // A complex number of lower rank takes the precision of the floating tensor.
    return is_complex(lower) ? to_complex(higher) : higher;
  }
  if (higher == DType::Bool || is_floating(lower) || is_complex(lower)) return promote_types(higher, lower);
  return higher;
}

DType number_dtype(const Scalar& s) {
  switch (s.category()) {
    case Category::Floating:
      return default_dtype();
    case Category::Complex:
      return default_complex_dtype();
    default:
      return s.dtype();
  }
}

}  // namespace

void ResultType::add(const Tensor& t) {
  if (t.impl()->bits & tensor_bit::kWrappedNumber) {
    DType d = t.dtype();
    if (is_floating(d)) d = default_dtype();
    if (is_complex(d)) d = default_complex_dtype();
    numbers_ = meet(numbers_, d);
  } else if (t.dim() == 0) {
    zero_dim_ = meet(zero_dim_, t.dtype());
  } else {
    dims_ = meet(dims_, t.dtype());
  }
}
void ResultType::add(const Scalar& s) { numbers_ = meet(numbers_, number_dtype(s)); }
DType ResultType::get() const { return combine_categories(dims_, combine_categories(zero_dim_, numbers_)); }

DType result_type(TensorList tensors) {
  ResultType r;
  for (const Tensor& t : tensors) r.add(t);
  return r.get();
}

// ---- operands ------------------------------------------------------------------------------------------------------

void PointwisePlan::input(const Tensor& t) {
  MICA_CHECK(t.defined(), op_.name, "(): got an undefined tensor as operand ", ninputs_ + 1);
  operands_[ninputs_++] = {&t, nullptr};
}

void PointwisePlan::input(const Scalar& s) { operands_[ninputs_++] = {nullptr, &s}; }

DType PointwisePlan::result_of(DType common) const {
  if (forced_result_ != DType::Undefined) return forced_result_;
  switch (op_.promotion) {
    case Promotion::Compare:
      return DType::Bool;
    case Promotion::Real:
    case Promotion::FloatReal:
      return to_real(common);
    default:
      return common;
  }
}

bool PointwisePlan::resolve_alike() {
  const Tensor* lead = nullptr;
  for (int i = 0; i < ninputs_; ++i) {
    const Operand& o = operands_[i];
    if (!o.tensor) continue;
    const TensorImpl* t = o.tensor->impl();
    if (!t->contiguous || (t->bits & tensor_bit::kWrappedNumber)) return false;
    if (!lead) {
      lead = o.tensor;
      continue;
    }
    const TensorView& a = lead->impl()->view;
    const TensorView& b = t->view;
    if (a.dtype != b.dtype || a.ndim != b.ndim || a.device != b.device) return false;
    for (int d = 0; d < a.ndim; ++d)
      if (a.sizes[d] != b.sizes[d]) return false;
  }
  if (!lead) return false;
  const DType dtype = lead->dtype();
  const Category kind = category(dtype);
  for (int i = 0; i < ninputs_; ++i)
    if (operands_[i].number && operands_[i].number->category() > kind) return false;
  const bool wants_float = op_.promotion == Promotion::Float || op_.promotion == Promotion::FloatReal;
  if (wants_float && kind < Category::Floating) return false;
  lead_ = lead;
  common_ = dtype;
  result_ = result_of(dtype);
  device_ = lead->device();
  alike_ = flat_ = true;
  return true;
}

void PointwisePlan::promote() {
  if (op_.promotion == Promotion::None) {
    for (int i = 0; i < ninputs_ && common_ == DType::Undefined; ++i)
      if (operands_[i].tensor) common_ = operands_[i].tensor->dtype();
    result_ = result_of(common_);
    return;
  }
  ResultType state;
  for (int i = 0; i < ninputs_; ++i) {
    if (operands_[i].tensor) {
      state.add(*operands_[i].tensor);
    } else {
      state.add(*operands_[i].number);
    }
  }
  common_ = state.get();
  const bool wants_float = op_.promotion == Promotion::Float || op_.promotion == Promotion::FloatReal;
  if (wants_float && !is_floating(common_) && !is_complex(common_)) common_ = default_dtype();
  result_ = result_of(common_);
}

void PointwisePlan::compute_shape() {
  bool flat = true;
  for (int i = 0; i < ninputs_; ++i) {
    const Tensor* t = operands_[i].tensor;
    if (!t) continue;
    if (!lead_) {
      lead_ = t;
      shape_.assign(t->sizes());
      device_ = t->device();
    } else {
      if (!(IntArrayRef(shape_) == t->sizes())) {
        flat = false;
        shape_ = broadcast_sizes(shape_, t->sizes());
      }
      if (t->device() != device_) {
        // A 0-dim CPU tensor may meet tensors of another device.
        if (t->dim() == 0 && t->is_cpu()) continue;
        MICA_CHECK(lead_->dim() == 0 && lead_->is_cpu(),
                   "Expected all tensors to be on the same device, but found at least two devices, ", device_, " and ",
                   t->device(), "! (in ", op_.name, "); move one with .to(device)");
        device_ = t->device();
        lead_ = t;
      }
    }
    flat &= t->impl()->contiguous;
  }
  flat_ = flat;
}

void PointwisePlan::cast_inputs() {
  for (int i = 0; i < ninputs_; ++i) {
    Operand& o = operands_[i];
    if (!o.tensor) continue;
    const DType wanted = op_.promotion == Promotion::None ? o.tensor->dtype() : common_;
    if (o.tensor->dtype() == wanted && o.tensor->device() == device_) continue;
    if (o.tensor->device() != device_ && !device_.is_meta()) {
      // A 0-dim CPU tensor goes along as a number: no memory of the device is made for it.
      const Tensor element = o.tensor->to(wanted);
      std::memcpy(values_[op_.noutputs + i], element.data_ptr(), static_cast<size_t>(element.element_size()));
      loop.dtypes[op_.noutputs + i] = wanted;
      o = {nullptr, nullptr};
      continue;
    }
    if (cast_.empty()) cast_.reserve(static_cast<size_t>(ninputs_));  // operands point into it
    cast_.push_back(o.tensor->to(device_, wanted));
    o.tensor = &cast_.back();
    flat_ &= o.tensor->impl()->contiguous;
  }
}

void PointwisePlan::resolve() {
  if (resolved_) return;
  resolved_ = true;
  if (resolve_alike()) return;
  promote();
  compute_shape();
  cast_inputs();
}

// ---- outputs -------------------------------------------------------------------------------------------------------

// Orders dimensions by the operands' strides, fastest first; the result of a permuted tensor is then permuted alike.
void PointwisePlan::compute_permutation() {
  const int64_t ndim = static_cast<int64_t>(shape_.size());
  if (flat_) {
    permutation_ = fastest_first(ndim, [](int64_t, int64_t) { return -1; });
    return;
  }
  auto stride_of = [&](const Tensor& t, int64_t d) -> int64_t {
    const int64_t at = d - (ndim - t.dim());
    if (at < 0) return 0;
    const TensorView& v = t.view_of();
    return v.sizes[at] == 1 && shape_[d] != 1 ? 0 : std::abs(v.strides[at]);
  };
  const auto compare = [&](int64_t a, int64_t b) {
    for (int k = 0; k < op_.noutputs + ninputs_; ++k) {
      const Tensor* t =
          k < op_.noutputs ? (outputs_[k].defined() ? &outputs_[k] : nullptr) : operands_[k - op_.noutputs].tensor;
      if (!t) continue;
      const int64_t x = stride_of(*t, a), y = stride_of(*t, b);
      if (x == 0 || y == 0) continue;
      if (x < y) return -1;
      if (x > y) return 1;
      if (shape_[a] > shape_[b]) return 1;
    }
    return 0;
  };
  permutation_ = fastest_first(ndim, compare);
}

Tensor PointwisePlan::allocate_output(DType dtype) {
  if (flat_ || shape().empty()) return empty_contiguous(shape(), dtype, device_);
  shape_.assign(shape());
  if (permutation_.empty()) compute_permutation();
  DimVector strides(shape_.size());
  int64_t next = 1;
  for (int64_t d : permutation_) {
    strides[d] = next;
    next *= std::max<int64_t>(shape_[d], 1);
  }
  return empty_with_strides(shape_, strides, dtype, device_);
}

Tensor PointwisePlan::fresh(int output) {
  resolve();
  outputs_[output] = allocate_output(output == 0 || forced_result_ == DType::Undefined ? result_ : forced_result_);
  return outputs_[output];
}

void PointwisePlan::in_place(const Tensor& self) {
  resolve();
  MICA_CHECK(shape() == self.sizes(), "output with shape ", self.sizes(), " doesn't match the broadcast shape ",
             shape(), ": ", op_.name, "_ cannot change the shape of self");
  if (alike_ && result_ == self.dtype() && lead_->is_same(self)) {
    // Inputs are contiguous and of self's shape: one that shares its memory is self again, or lies elsewhere in the
    // storage.
    bool apart = true;
    for (int i = 0; i < ninputs_; ++i) {
      const Tensor* t = operands_[i].tensor;
      apart &= !t || t->is_same(self) || !(t->storage() == self.storage());
    }
    if (apart) {
      outputs_[0] = self;
      return;
    }
  }
  into(self, 0);
}

void PointwisePlan::into(const Tensor& out, int output) {
  resolve();
  given_[output] = out;
  MICA_CHECK(out.device() == device_, "Expected all tensors to be on the same device, but found at least two devices, ",
             device_, " and ", out.device(), "! (out of ", op_.name, ")");
  MICA_CHECK(out.dtype() == result_ || can_cast(result_, out.dtype()), "result type ", info(result_).legacy,
             " can't be cast to the desired output type ", info(out.dtype()).legacy);
  const bool fits = shape() == out.sizes();
  bool direct = out.dtype() == result_ && fits;
  if (fits && out.numel() > 1) {
    check_no_internal_overlap(op_.name, out);
    for (int i = 0; i < ninputs_; ++i) {
      const Tensor* t = operands_[i].tensor;
      if (!t || !direct || !may_share_memory(*t, out)) continue;
      const bool same = t->data_ptr() == out.data_ptr() && t->sizes() == out.sizes() && t->strides() == out.strides();
      if (same) continue;
      MICA_CHECK(t->is_same(out),
                 "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                 "memory location. "
                 "Please clone() the tensor before performing the operation.");
      direct = false;
    }
  }
  if (direct) {
    if (!out.impl()->contiguous) {
      if (alike_) shape_.assign(shape());
      flat_ = alike_ = false;
    }
    outputs_[output] = out;
  } else {
    outputs_[output] = allocate_output(result_);
  }
}

void PointwisePlan::finish() {
  for (int i = 0; i < op_.noutputs; ++i)
    if (given_[i].defined() && !given_[i].is_same(outputs_[i])) write_out(op_.name, given_[i], outputs_[i]);
}

// ---- the loop ------------------------------------------------------------------------------------------------------

void PointwisePlan::prepare() {
  const int nout = op_.noutputs;
  const int n = nout + ninputs_;
  loop.device = device_;
  loop.dtype = common_;
  loop.result_dtype = result_;
  loop.noutputs = nout;
  loop.noperands = n;
  loop.numbers = 0;
  loop.numel = outputs_[0].numel();
  const TensorView* views[PointwiseLoop::kMaxOperands];
  for (int k = 0; k < n; ++k) {
    if (k < nout) {
      views[k] = &outputs_[k].view_of();
    } else if (operands_[k - nout].tensor) {
      views[k] = &operands_[k - nout].tensor->view_of();
    } else {
      if (const Scalar* number = operands_[k - nout].number) {
        write_scalar(*number, common_, values_[k]);
        if (common_ == DType::Float16 || common_ == DType::BFloat16) {
          // Their products and quotients are computed with the number itself: it stands behind its element.
          const float exact = number->is_complex() ? 0.0f : static_cast<float>(number->to_double());
          std::memcpy(values_[k] + 8, &exact, sizeof(exact));
        }
        loop.dtypes[k] = common_;
      }
      views[k] = nullptr;
      loop.numbers |= 1u << k;
      loop.data[k] = reinterpret_cast<char*>(values_[k]);
      continue;
    }
    loop.data[k] = static_cast<char*>(views[k]->data);
    loop.dtypes[k] = views[k]->dtype;
  }
  if (flat_) {
    loop.ndim = 1;
    loop.shape[0] = loop.numel;
    for (int k = 0; k < n; ++k) loop.strides[0][k] = views[k] ? element_size(views[k]->dtype) : 0;
    return;
  }
  const int64_t ndim = static_cast<int64_t>(shape_.size());
  compute_permutation();
  // Dimensions in order, fastest first; those of size one vanish, and neighbours that continue each other merge.
  int out_dim = 0;
  for (int64_t p = 0; p < ndim; ++p) {
    const int64_t d = permutation_[p];
    if (shape_[d] == 1) continue;
    int64_t step[PointwiseLoop::kMaxOperands];
    for (int k = 0; k < n; ++k) {
      step[k] = 0;
      if (!views[k]) continue;
      const int64_t at = d - (ndim - views[k]->ndim);
      if (at >= 0 && views[k]->sizes[at] != 1) step[k] = views[k]->strides[at] * element_size(views[k]->dtype);
    }
    bool merge = out_dim > 0;
    for (int k = 0; k < n && merge; ++k) merge = step[k] == loop.strides[out_dim - 1][k] * loop.shape[out_dim - 1];
    if (merge) {
      loop.shape[out_dim - 1] *= shape_[d];
    } else {
      loop.shape[out_dim] = shape_[d];
      for (int k = 0; k < n; ++k) loop.strides[out_dim][k] = step[k];
      ++out_dim;
    }
  }
  if (out_dim == 0) {
    loop.shape[0] = 1;
    for (int k = 0; k < n; ++k) loop.strides[0][k] = views[k] ? element_size(views[k]->dtype) : 0;
    out_dim = 1;
  }
  loop.ndim = out_dim;
}

}  // namespace mica
