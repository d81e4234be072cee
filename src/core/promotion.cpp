// The dtype that operands of several dtypes and ranks come to.
#include "core/pointwise.h"

namespace mica {

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

}  // namespace mica
