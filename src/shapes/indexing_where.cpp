// where, and the checks of masked_fill's arguments.
#include "core/pointwise.h"
#include "mica/generated/implementations.h"
#include "mica/warning.h"
#include "shapes/indexing.h"

namespace mica {

namespace {

constexpr PointwiseOp kWhere{"where", Promotion::None};

void check_same_device(const Tensor& condition, const Tensor& t) {
  MICA_CHECK(condition.device() == t.device() || t.dim() == 0 || condition.dim() == 0,
             "Expected condition, x and y to be on the same device, but condition is on ", condition.device(),
             " and x or y is on ", t.device());
}
void check_same_device(const Tensor&, const Scalar&) {}

// An operand in the dtype of the result. A number is converted by the plan.
Tensor operand(const Tensor& t, DType dtype) { return t.to(dtype); }
Scalar operand(const Scalar& s, DType dtype) { return as_one_element(s, dtype); }

// The plan takes its dtype from the first tensor, so of two numbers one is made a tensor.
template <class A, class B>
void select(Out& out, const Tensor& condition, const A& self, const B& other) {
  MICA_CHECK(condition.dtype() == DType::Bool || condition.dtype() == DType::UInt8,
             "where expected condition to be a boolean tensor, but got a tensor with dtype ",
             info(condition.dtype()).legacy);
  check_same_device(condition, self);
  check_same_device(condition, other);
  if (condition.dtype() == DType::UInt8) {
    MICA_WARN_ONCE(
        "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version "
        "of PyTorch. Use a boolean condition instead.");
  }
  ResultType type;
  type.add(self);
  type.add(other);
  const DType dtype = type.get();
  const auto a = operand(self, dtype);
  const auto b = operand(other, dtype);
  const Tensor holds = condition.to(DType::Bool);
  PointwisePlan plan(kWhere);
  plan.set_result_dtype(dtype);
  plan.input(a);
  plan.input(b);
  plan.input(holds);
  const Tensor result = plan.fresh();
  plan.prepare();
  if (plan.has_work()) plan.run("where", MICA_KERNEL(plan.loop.device, where));
  out.take(result);
}

void check_masked_fill(const Tensor& self, const Tensor& mask) {
  MICA_CHECK(mask.dtype() == DType::Bool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
             mask.dtype());
  MICA_CHECK(self.device() == mask.device(), "expected self and mask to be on the same device, but got mask on ",
             mask.device(), " and self on ", self.device());
}

}  // namespace

namespace shapes {

void where(Out& out, const Tensor& condition, const Tensor& self, const Tensor& other) {
  select(out, condition, self, other);
}
void where(Out& out, const Tensor& condition, const Tensor& self, const Scalar& other) {
  select(out, condition, self, other);
}
void where(Out& out, const Tensor& condition, const Scalar& self, const Tensor& other) {
  select(out, condition, self, other);
}
void where(Out& out, const Tensor& condition, const Scalar& self, const Scalar& other) {
  ResultType type;
  type.add(self);
  type.add(other);
  const TensorOptions options = TensorOptions(type.get()).device(condition.device());
  select(out, condition, scalar_tensor(self, options), scalar_tensor(other, options));
}

}  // namespace shapes

namespace checks {

void masked_fill(const Tensor& self, const Tensor& mask, const Scalar& value) {
  check_masked_fill(self, mask);
  check_number_fits(value, self.dtype());
}

void masked_fill(const Tensor& self, const Tensor& mask, const Tensor& value) {
  check_masked_fill(self, mask);
  MICA_CHECK(value.dim() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
             value.dim(), " dimension(s).");
  if (value.is_cpu() && value.dtype() != self.dtype()) check_number_fits(value.item(), self.dtype());
}

}  // namespace checks
}  // namespace mica
