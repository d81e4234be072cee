#include "core/pointwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/dimension_order.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/reach.h"
#include "core/scalar_bytes.h"
#include "mica/backend.h"
#include "mica/ops.h"

namespace mica {

// ---- operands ------------------------------------------------------------------------------------------------------

namespace {

// A tensor's view with the present address of its memory. Memory that recorded calls only read may be read beside them.
const TensorView& view_of(const TensorImpl* t, bool is_output) {
  if (t->storage && t->storage->moved()) [[unlikely]] {
    if (is_output || t->storage->written_later()) t->storage->data();
    check_reach(*t);
    const_cast<TensorImpl*>(t)->refresh_data_pointer();
  }
  return t->view;
}

}  // namespace

void PointwisePlan::refuse_undefined() const {
  fail(cat(op_.name, "(): got an undefined tensor as operand ", ninputs_ + 1));
}

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

// Contiguous tensors may have any strides in dimensions of size one. With a number, torch orders dimensions by them.
static bool is_canonical(const TensorView& v) {
  int64_t next = 1;
  for (int d = v.ndim - 1; d >= 0; --d) {
    if (v.strides[d] != next) return false;
    next *= v.sizes[d];
  }
  return true;
}

bool PointwisePlan::resolve_alike() {
  const Tensor* lead = nullptr;
  Category highest = Category::Bool;  // the highest category of the numbers
  bool has_number = false;
  for (int i = 0; i < ninputs_; ++i) {
    const Operand& o = operands_[i];
    if (!o.tensor) {
      highest = std::max(highest, o.number->category());
      has_number = true;
      continue;
    }
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
  if (has_number && !is_canonical(lead->impl()->view)) return false;
  const DType dtype = lead->dtype();
  const Category kind = category(dtype);
  if (highest > kind) return false;
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
  DimVector& shape = general_->shape;
  bool flat = true, has_number = false;
  for (int i = 0; i < ninputs_; ++i) {
    const Tensor* t = operands_[i].tensor;
    has_number |= !t;
    if (!t) continue;
    if (!lead_) {
      lead_ = t;
      shape.assign(t->sizes());
      device_ = t->device();
    } else {
      if (!(shape.ref() == t->sizes())) {
        flat = false;
        shape = broadcast_sizes(shape, t->sizes());
      }
      if (t->device() != device_) {
        // A 0-dim CPU tensor may meet tensors of another device.
        if (t->dim() == 0 && t->is_cpu()) continue;
        MICA_CHECK(lead_->dim() == 0 && lead_->is_cpu(),
                   "Expected all tensors to be on the same device, but found at least two devices, ", device_, " and ",
                   t->device(), "! (in ", op_.name, ")");
        device_ = t->device();
        lead_ = t;
      }
    }
    flat &= t->impl()->contiguous;
  }
  flat_ = flat && (!has_number || is_canonical(lead_->impl()->view));
}

// Whether the backend widens this 16-bit operand itself in a float32 loop, as for residual connections under autocast.
static bool is_read_as_it_is(const char* op, const Tensor& t, DType wanted) {
  if (wanted != DType::Float32) return false;
  if (t.dtype() != DType::BFloat16 && t.dtype() != DType::Float16) return false;
  const auto widens = capabilities_of(t.device()).widens_operands;
  return widens && widens(op);
}

void PointwisePlan::cast_inputs() {
  for (int i = 0; i < ninputs_; ++i) {
    Operand& o = operands_[i];
    if (!o.tensor) continue;
    const DType wanted = op_.promotion == Promotion::None ? o.tensor->dtype() : common_;
    if (o.tensor->dtype() == wanted && o.tensor->device() == device_) continue;
    if (o.tensor->device() == device_ && is_read_as_it_is(op_.name, *o.tensor, wanted)) continue;
    if (o.tensor->device() != device_ && !device_.is_meta()) {
      // A 0-dim CPU tensor goes along as a number: no memory of the device is made for it.
      const Tensor element = o.tensor->to(wanted);
      std::memcpy(values_[op_.noutputs + i], element.data_ptr(), static_cast<size_t>(element.element_size()));
      loop.dtypes[op_.noutputs + i] = wanted;
      o = {nullptr, nullptr};
      continue;
    }
    std::vector<Tensor>& cast = general_->cast;
    if (cast.empty()) cast.reserve(static_cast<size_t>(ninputs_));  // operands point into it, so it must not grow
    cast.push_back(o.tensor->to(device_, wanted));
    o.tensor = &cast.back();
    flat_ &= o.tensor->impl()->contiguous;
  }
}

void PointwisePlan::resolve() {
  if (resolved_) return;
  resolved_ = true;
  if (!resolve_alike()) [[unlikely]] {
    general_.emplace();
    promote();
    compute_shape();
    cast_inputs();
  }
  if (thread_modes & mode_bit::kRecord) [[unlikely]]
    deferred_ = can_wait();
}

// ---- numbers --------------------------------------------------------------------------------------------------------

void PointwisePlan::write_number(int k) {
  const Scalar* number = operands_[k - op_.noutputs].number;
  if (!number) return;
  write_scalar(*number, common_, values_[k]);
  if (is_narrow(common_) || is_float8(common_) || common_ == DType::Complex32) {
    // Products and quotients use the number itself, not rounded to the dtype: as float32 it stands behind the element.
    const float exact = number->is_complex() ? NAN : static_cast<float>(number->to_double());
    std::memcpy(values_[k] + 8, &exact, sizeof(exact));
  }
  loop.dtypes[k] = common_;
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
  loop.numel = outputs_[0]->view.numel;
  if (deferred_) [[unlikely]]
    return;
  uint32_t numbers = 0;
  const TensorView* views[PointwiseLoop::kMaxOperands];
  for (int k = 0; k < n; ++k) {
    const Tensor* input = k < nout ? nullptr : operands_[k - nout].tensor;
    if (k >= nout && !input) {
      write_number(k);
      views[k] = nullptr;
      numbers |= 1u << k;
      loop.data[k] = reinterpret_cast<char*>(values_[k]);
      loop.strides[0][k] = 0;
      continue;
    }
    const TensorView& v = view_of(input ? input->impl() : outputs_[k], !input);
    views[k] = &v;
    loop.data[k] = static_cast<char*>(v.data);
    loop.dtypes[k] = v.dtype;
    loop.strides[0][k] = element_size(v.dtype);
  }
  loop.numbers = numbers;
  loop.ndim = 1;
  loop.shape[0] = loop.numel;
  // A loop without elements stays one dimension of size 0, whatever its operands' strides.
  if (!flat_ && loop.numel > 0) [[unlikely]]
    nest(views);
}

// Orders dimensions by the operands' strides, fastest first; the result of a permuted tensor is then permuted alike.
void PointwisePlan::compute_permutation() {
  const DimVector& shape = general_->shape;
  const int64_t ndim = static_cast<int64_t>(shape.size());
  if (flat_) {
    general_->permutation = fastest_first(ndim, [](int64_t, int64_t) { return -1; });
    return;
  }
  auto stride_of = [&](const TensorView& v, int64_t d) -> int64_t {
    const int64_t at = d - (ndim - v.ndim);
    if (at < 0) return 0;
    return v.sizes[at] == 1 && shape[d] != 1 ? 0 : std::abs(v.strides[at]);
  };
  const auto compare = [&](int64_t a, int64_t b) {
    for (int k = 0; k < op_.noutputs + ninputs_; ++k) {
      const Tensor* input = k < op_.noutputs ? nullptr : operands_[k - op_.noutputs].tensor;
      const TensorImpl* t = k < op_.noutputs ? outputs_[k] : input ? input->impl() : nullptr;
      if (!t) continue;
      const int64_t x = stride_of(t->view, a), y = stride_of(t->view, b);
      if (x == 0 || y == 0) continue;
      if (x < y) return -1;
      if (x > y) return 1;
      if (shape[a] > shape[b]) return 1;
    }
    return 0;
  };
  general_->permutation = fastest_first(ndim, compare);
}

// Dimensions in order, fastest first; those of size one vanish, and neighbours that continue each other merge.
void PointwisePlan::nest(const TensorView* const* views) {
  const DimVector& shape = general_->shape;
  const int n = loop.noperands;
  const int64_t ndim = static_cast<int64_t>(shape.size());
  compute_permutation();
  int out_dim = 0;
  for (int64_t p = 0; p < ndim; ++p) {
    const int64_t d = general_->permutation[p];
    if (shape[d] == 1) continue;
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
      loop.shape[out_dim - 1] *= shape[d];
    } else {
      loop.shape[out_dim] = shape[d];
      for (int k = 0; k < n; ++k) loop.strides[out_dim][k] = step[k];
      ++out_dim;
    }
  }
  if (out_dim > 0) loop.ndim = out_dim;  // otherwise the loop has one element, and stays as it is
}

}  // namespace mica
