#include "core/pointwise.h"

#include <algorithm>
#include <cstring>

#include "core/allocate.h"
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
  operands_[ninputs_++].tensor = &t;
}

void PointwisePlan::input(const Scalar& s) { operands_[ninputs_++].number = s; }

void PointwisePlan::promote() {
  ResultType state;
  bool one_dtype = true, tensor_seen = false;
  DType first = DType::Undefined;
  for (int i = 0; i < ninputs_; ++i) {
    const Operand& o = operands_[i];
    if (o.tensor) {
      if (!tensor_seen) {
        first = o.tensor->dtype();
        tensor_seen = true;
      }
      one_dtype &= o.tensor->dtype() == first && !(o.tensor->impl()->bits & tensor_bit::kWrappedNumber);
      state.add(*o.tensor);
    } else {
      state.add(o.number);
    }
  }
  if (op_.promotion == Promotion::None) {
    common_ = first;
    result_ = forced_result_ == DType::Undefined ? first : forced_result_;
    return;
  }
  common_ = state.get();
  switch (op_.promotion) {
    case Promotion::Float:
    case Promotion::FloatReal:
      if (!is_floating(common_) && !is_complex(common_)) common_ = default_dtype();
      break;
    default:
      break;
  }
  result_ = common_;
  if (op_.promotion == Promotion::Compare) result_ = DType::Bool;
  if (op_.promotion == Promotion::Real || op_.promotion == Promotion::FloatReal) result_ = to_real(common_);
  if (forced_result_ != DType::Undefined) result_ = forced_result_;
}

void PointwisePlan::compute_shape() {
  const Tensor* lead = nullptr;
  bool contiguous = true;
  for (int i = 0; i < ninputs_; ++i) {
    const Tensor* t = operands_[i].tensor;
    if (!t) continue;
    if (!lead) {
      lead = t;
      shape_.assign(t->sizes());
      device_ = t->device();
    } else {
      if (!(IntArrayRef(shape_) == t->sizes())) {
        contiguous = false;
        shape_ = broadcast_sizes(shape_, t->sizes());
      }
      if (t->device() != device_) {
        // A 0-dim CPU tensor may meet tensors of another device.
        if (t->dim() == 0 && t->is_cpu()) continue;
        MICA_CHECK(lead->dim() == 0 && lead->is_cpu(), "Expected all tensors to be on the same device, but found at least two devices, ",
                   device_, " and ", t->device(), "! (in ", op_.name, "); move one with .to(device)");
        device_ = t->device();
        lead = t;
      }
    }
    contiguous &= t->impl()->contiguous;
  }
  fast_ = contiguous;
}

void PointwisePlan::resolve() {
  if (resolved_) return;
  resolved_ = true;
  promote();
  compute_shape();
  if (op_.promotion != Promotion::None) {
    for (int i = 0; i < ninputs_; ++i) {
      Operand& o = operands_[i];
      if (o.tensor && (o.tensor->dtype() != common_ || o.tensor->device() != device_)) {
        o.cast = o.tensor->to(device_, common_);
        o.tensor = &o.cast;
        fast_ &= o.cast.impl()->contiguous;
      }
    }
  }
}

// ---- outputs -------------------------------------------------------------------------------------------------------

// Orders dimensions by the operands' strides, fastest first; the result of a permuted tensor is then permuted alike.
void PointwisePlan::compute_permutation() {
  const int64_t ndim = static_cast<int64_t>(shape_.size());
  permutation_.resize(ndim);
  for (int64_t i = 0; i < ndim; ++i) permutation_[i] = ndim - 1 - i;
  if (fast_) return;
  auto stride_of = [&](const Tensor& t, int64_t d) -> int64_t {
    const int64_t at = d - (ndim - t.dim());
    return at < 0 || t.view_of().sizes[at] == 1 ? 0 : std::abs(t.view_of().strides[at]);
  };
  // 1: a should come after b (a is slower), -1: before, 0: undecided.
  auto compare = [&](int64_t a, int64_t b) {
    for (int k = 0; k < op_.noutputs + ninputs_; ++k) {
      const Tensor* t = k < op_.noutputs ? (outputs_[k].defined() ? &outputs_[k] : nullptr) : operands_[k - op_.noutputs].tensor;
      if (!t) continue;
      const int64_t x = stride_of(*t, a), y = stride_of(*t, b);
      if (x == 0 || y == 0) continue;
      if (x < y) return -1;
      if (x > y) return 1;
      if (shape_[a] > shape_[b]) return 1;
    }
    return 0;
  };
  for (int64_t i = 1; i < ndim; ++i) {
    int64_t dim1 = i;
    for (int64_t dim0 = i - 1; dim0 >= 0; --dim0) {
      const int order = compare(permutation_[dim0], permutation_[dim1]);
      if (order > 0) {
        std::swap(permutation_[dim0], permutation_[dim1]);
        dim1 = dim0;
      } else if (order < 0) {
        break;
      }
    }
  }
}

Tensor PointwisePlan::allocate_output(DType dtype) {
  if (fast_ || shape_.empty()) return empty_contiguous(shape_, dtype, device_);
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
  MICA_CHECK(IntArrayRef(shape_) == self.sizes(), "output with shape ", self.sizes(), " doesn't match the broadcast shape ",
             shape_.ref(), ": ", op_.name, "_ cannot change the shape of self");
  MICA_CHECK(self.dtype() == result_ || can_cast(result_, self.dtype()), "result type ", info(result_).legacy,
             " can't be cast to the desired output type ", info(self.dtype()).legacy);
  MICA_CHECK(!has_internal_overlap(self.sizes(), self.strides()) || self.numel() < 2,
             "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
             "Please clone() the tensor before performing the operation. (",
             op_.name, "_ on sizes ", self.sizes(), " with strides ", self.strides(), ")");
  into(self, 0);
}

void PointwisePlan::into(const Tensor& out, int output) {
  resolve();
  given_[output] = out;
  MICA_CHECK(out.device() == device_, "Expected all tensors to be on the same device, but found at least two devices, ", device_,
             " and ", out.device(), "! (out of ", op_.name, ")");
  MICA_CHECK(out.dtype() == result_ || can_cast(result_, out.dtype()), "result type ", info(result_).legacy,
             " can't be cast to the desired output type ", info(out.dtype()).legacy);
  bool direct = out.dtype() == result_ && IntArrayRef(shape_) == out.sizes();
  if (IntArrayRef(shape_) == out.sizes() && out.numel() > 1) {
    MICA_CHECK(!has_internal_overlap(out.sizes(), out.strides()),
               "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
               "Please clone() the tensor before performing the operation.");
    for (int i = 0; i < ninputs_; ++i) {
      const Tensor* t = operands_[i].tensor;
      if (!t || !direct || !may_share_memory(*t, out)) continue;
      const bool same = t->data_ptr() == out.data_ptr() && t->sizes() == out.sizes() && t->strides() == out.strides();
      if (same) continue;
      MICA_CHECK(t == &operands_[i].cast || t->is_same(out),
                 "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
                 "Please clone() the tensor before performing the operation.");
      direct = false;
    }
  }
  if (direct) {
    fast_ &= out.impl()->contiguous;
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
  loop.numel = outputs_[0].numel();
  const int64_t ndim = static_cast<int64_t>(shape_.size());
  const TensorView* views[PointwiseLoop::kMaxOperands];
  for (int k = 0; k < n; ++k) {
    if (k < nout) {
      views[k] = &outputs_[k].view_of();
    } else if (operands_[k - nout].tensor) {
      views[k] = &operands_[k - nout].tensor->view_of();
    } else {
      Operand& o = operands_[k - nout];
      write_scalar(o.number, common_, o.value);
      views[k] = nullptr;
      loop.data[k] = reinterpret_cast<char*>(o.value);
      loop.dtypes[k] = common_;
      continue;
    }
    loop.data[k] = static_cast<char*>(views[k]->data);
    loop.dtypes[k] = views[k]->dtype;
  }
  if (fast_) {
    loop.ndim = 1;
    loop.shape[0] = loop.numel;
    for (int k = 0; k < n; ++k) loop.strides[0][k] = views[k] ? element_size(views[k]->dtype) : 0;
    return;
  }
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
