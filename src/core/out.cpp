#include "core/out.h"

#include "core/allocate.h"
#include "core/geometry.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica {

bool may_share_memory(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || !(a.storage() == b.storage()) || !a.data_ptr()) return false;
  const Extent x = extent(a.sizes(), a.strides()), y = extent(b.sizes(), b.strides());
  const char* pa = static_cast<const char*>(a.data_ptr());
  const char* pb = static_cast<const char*>(b.data_ptr());
  return pa + x.low * a.element_size() < pb + y.high * b.element_size() &&
         pb + y.low * b.element_size() < pa + x.high * a.element_size();
}

void check_no_internal_overlap(const char* op, const Tensor& target) {
  if (target.impl()->contiguous || target.numel() < 2) return;
  MICA_CHECK(
      !has_internal_overlap(target.sizes(), target.strides()),
      "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
      "Please clone() the tensor before performing the operation. (",
      op, " on sizes ", target.sizes(), " with strides ", target.strides(), ")");
}

void write_out(const char* op, const Tensor& out, const Tensor& result) {
  MICA_CHECK(out.device() == result.device(), op, "(): expected out on ", result.device(), " but got ", out.device());
  MICA_CHECK(out.dtype() == result.dtype() || can_cast(result.dtype(), out.dtype()), "result type ",
             info(result.dtype()).legacy, " can't be cast to the desired output type ", info(out.dtype()).legacy);
  if (!(out.sizes() == result.sizes())) {
    if (out.numel() > 0) {
      warn(cat("An output with one or more elements was resized since it had shape ", out.sizes(),
               ", which does not match the required output shape ", result.sizes(),
               ". This behavior is deprecated; resize out to zero elements with t.resize_(0) before reusing it."));
    }
    out.resize_(result.sizes());
  }
  out.copy_(result);
}

Out::Out(const char* op, const Tensor& given, TensorList inputs, bool in_place)
    : op_(op), given_(given), inputs_(inputs.begin(), inputs.end()), in_place_(in_place) {}

const Tensor& Out::set(IntArrayRef sizes, DType dtype, Device device, IntArrayRef strides) {
  if (given_.defined()) {
    MICA_CHECK(given_.device() == device, op_, "(): expected out on ", device, " but got ", given_.device());
    MICA_CHECK(given_.dtype() == dtype || can_cast(dtype, given_.dtype()), "result type ", info(dtype).legacy,
               " can't be cast to the desired output type ", info(given_.dtype()).legacy);
    if (in_place_) {
      MICA_CHECK(given_.sizes() == sizes, "output with shape ", given_.sizes(), " doesn't match the broadcast shape ",
                 sizes, " (", op_, ")");
    }
    bool direct = given_.dtype() == dtype && given_.sizes() == sizes &&
                  (given_.impl()->contiguous || !has_internal_overlap(given_.sizes(), given_.strides()));
    for (const Tensor& t : inputs_) direct = direct && !may_share_memory(t, given_);
    if (direct) {
      tensor_ = given_;
      return tensor_;
    }
  }
  tensor_ =
      strides.empty() ? empty_contiguous(sizes, dtype, device) : empty_with_strides(sizes, strides, dtype, device);
  return tensor_;
}

const Tensor& Out::take(const Tensor& computed) {
  tensor_ = computed;
  return tensor_;
}

Tensor Out::finish() {
  if (given_.defined() && !given_.is_same(tensor_)) {
    MICA_CHECK(!in_place_ || given_.sizes() == tensor_.sizes(), "output with shape ", given_.sizes(),
               " doesn't match the broadcast shape ", tensor_.sizes(), " (", op_, ")");
    write_out(op_, given_, tensor_);
    return std::move(given_);
  }
  return std::move(tensor_);
}

}  // namespace mica
