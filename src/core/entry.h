// What the generated entry of an operation calls before and around the dense work. The one place where rare kinds of
// tensors and modes branch off.
#pragma once

#include <vector>

#include "mica/parallel.h"

#include "mica/autograd.h"
#include "mica/tensor.h"

namespace mica {

inline bool is_differentiable(DType t) { return is_floating(t) || is_complex(t); }
inline bool is_differentiable(const Tensor& t) { return is_differentiable(t.dtype()); }
bool any_defined(const TensorVec& list);
std::vector<SavedTensor> save_list(TensorList list);
TensorVec unpack_list(const std::vector<SavedTensor>& list);
std::vector<DimVector> sizes_of(TensorList list);
std::vector<DType> dtypes_of(TensorList list);

namespace entry {

inline uint32_t bits(const Tensor& t) { return t.defined() ? t.impl()->bits : 0; }
inline uint32_t bits(TensorList list) {
  uint32_t b = 0;
  for (const Tensor& t : list) b |= bits(t);
  return b;
}
template <class... Ts>
inline bool special(const Ts&... ts) {
  return ((bits(ts) | ...) & tensor_bit::kSpecial) != 0;
}

// The tensor with its lazy conjugation and negation carried out; the tensor itself when there is none.
Tensor plain(const Tensor& t);
std::vector<Tensor> plain(TensorList list);

// Runs an in-place operation on a plain copy of a lazy `self` and writes the result back through it.
const Tensor& through_plain(const Tensor& self, FunctionRef<void(const Tensor&)> body);

// What a composite computes with in place of the tensor that it is about to change: a copy where its parts may keep it
// for the backward pass.
Tensor value_of(const Tensor& self);

// self <- result, for composites: same shape and a castable dtype, or torch's error.
void write_in_place(const char* op, const Tensor& self, const Tensor& result);

// out <- result, for factories: out is given the result's shape without further ado.
void write_new(const Tensor& out, const Tensor& result);

void check_out(const char* op, TensorList inputs, std::initializer_list<Tensor> outs);

// A flat list of an operation's tensors, for overlap checks; lives until the end of the full expression's scope.
class Inputs {
 public:
  template <class... Ts>
  explicit Inputs(const Ts&... ts) {
    (append(ts), ...);
  }
  operator TensorList() const { return {list_.data(), list_.size()}; }

 private:
  void append(const Tensor& t) {
    if (t.defined()) list_.push_back(t);
  }
  void append(TensorList l) {
    for (const Tensor& t : l) append(t);
  }
  std::vector<Tensor> list_;
};
template <class... Ts>
Inputs inputs(const Ts&... ts) {
  return Inputs(ts...);
}

}  // namespace entry
}  // namespace mica
