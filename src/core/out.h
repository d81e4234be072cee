// Out: the destination of a native operation. The operation's shape rule declares what it will write with set(); Out
// allocates it, or takes the caller's out= or self when that has the right form and shares no memory with an input, or
// stands in with a temporary that finish() copies over. A call that fails before finish() has changed nothing.
#pragma once

#include "mica/tensor.h"

namespace mica {

class Out {
 public:
  Out() = default;  // a fresh output
  Out(const char* op, const Tensor& given, TensorList inputs, bool in_place = false);

  // Declares the output and returns the tensor to fill. Empty strides mean contiguous.
  const Tensor& set(IntArrayRef sizes, DType dtype, Device device, IntArrayRef strides = {});
  const Tensor& set_like(const Tensor& t) { return set(t.sizes(), t.dtype(), t.device()); }
  const Tensor& set_like(const Tensor& t, DType dtype) { return set(t.sizes(), dtype, t.device()); }
  // Takes an already computed tensor as the result (a rule written in terms of other operations).
  const Tensor& take(Tensor computed);

  const Tensor& tensor() const { return tensor_; }
  bool needs_kernel() const { return tensor_.numel() > 0 && !tensor_.is_meta(); }
  bool defined_given() const { return given_.defined(); }
  std::optional<DType> given_dtype() const {
    return given_.defined() ? std::optional<DType>(given_.dtype()) : std::nullopt;
  }
  Tensor finish();  // the result; ends the use of this object

 private:
  const char* op_ = "";
  Tensor given_;
  std::vector<Tensor> inputs_;
  Tensor tensor_;
  bool in_place_ = false;
};

// Copies `result` into the caller's out=, resizing it as torch does (with its warning).
// With `follow`, an out= that is resized gets the result's strides, as those of pointwise operations do.
void write_out(const char* op, const Tensor& out, const Tensor& result, bool follow = false);
bool may_share_memory(const Tensor& a, const Tensor& b);  // conservative: compares the byte ranges

// Refuses a target in which two indices reach one element, in torch's words.
void check_no_internal_overlap(const char* op, const Tensor& target);

}  // namespace mica
