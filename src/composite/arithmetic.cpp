#include "core/pointwise.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica {

namespace composite {

Tensor rsub(const Tensor& self, const Tensor& other, const Scalar& alpha) { return mica::sub(other, self, alpha); }

Tensor rsub(const Tensor& self, const Scalar& other, const Scalar& alpha) {
  return mica::add(mica::mul(self, -alpha), other);
}

DType result_type(const Tensor& tensor, const Tensor& other) {
  ResultType r;
  r.add(tensor);
  r.add(other);
  return r.get();
}

DType result_type(const Tensor& tensor, const Scalar& other) {
  ResultType r;
  r.add(tensor);
  r.add(other);
  return r.get();
}

}  // namespace composite

namespace checks {

namespace {

bool is_bool(const Tensor& t) { return t.dtype() == DType::Bool; }
bool is_bool(const Scalar& s) { return s.is_bool(); }

template <class Other>
void check_alpha(const Tensor& self, const Other& other, const Scalar& alpha) {
  MICA_CHECK(!alpha.is_bool() || (is_bool(self) && is_bool(other)), "Boolean alpha only supported for Boolean results.");
  if (!alpha.is_floating() && !alpha.is_complex()) return;
  const DType common = mica::result_type(self, other);
  MICA_CHECK(is_floating(common) || is_complex(common), "For integral input tensors, argument alpha must not be a floating point number.");
  MICA_CHECK(!alpha.is_complex() || is_complex(common), "For non-complex input tensors, argument alpha must not be a complex number.");
}

template <class Other>
void check_sub(const Tensor& self, const Other& other, const Scalar& alpha) {
  MICA_CHECK(!is_bool(self) || !is_bool(other),
             "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.");
  MICA_CHECK(!is_bool(self) && !is_bool(other),
             "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
             "`logical_not()` operator instead.");
  check_alpha(self, other, alpha);
}

}  // namespace

void add_sub(const Tensor& self, const Tensor& other, const Scalar& alpha) { check_alpha(self, other, alpha); }
void add_sub(const Tensor& self, const Scalar& other, const Scalar& alpha) { check_alpha(self, other, alpha); }
void sub(const Tensor& self, const Tensor& other, const Scalar& alpha) { check_sub(self, other, alpha); }
void sub(const Tensor& self, const Scalar& other, const Scalar& alpha) { check_sub(self, other, alpha); }

void neg(const Tensor& self) {
  MICA_CHECK(!is_bool(self), "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the "
             "`~` or `logical_not()` operator instead.");
}

}  // namespace checks
}  // namespace mica
