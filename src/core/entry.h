// Functions that the generated entry of an operation calls before and around the dense work. Rare kinds of tensors and
// modes branch off here and nowhere else.
#pragma once

#include <tuple>
#include <vector>

#include "mica/parallel.h"

#include "mica/autograd.h"
#include "mica/tensor.h"

// Marks the functions beside an entry that few calls come to. g++ compiles them with -O1: a first build then takes an
// eighth less time for the generated sources, and the entries themselves are compiled as before.
#ifdef __clang__
#define MICA_COLD [[gnu::cold, gnu::noinline]]
#else
#define MICA_COLD [[gnu::cold, gnu::noinline, gnu::optimize("O1")]]
#endif

namespace mica {

inline bool is_differentiable(DType t) { return is_floating(t) || is_complex(t); }
inline bool is_differentiable(const Tensor& t) { return is_differentiable(t.dtype()); }
bool any_defined(const TensorVec& list);
std::vector<SavedTensor> save_list(TensorList list);
TensorVec unpack_list(const std::vector<SavedTensor>& list);
std::vector<DimVector> sizes_of(TensorList list);
std::vector<DType> dtypes_of(TensorList list);

// A call is one change of a tensor, which its entry counts at the end. The changes that are counted while this object
// lives are the call's steps, and are taken back. No step may save the tensor for a backward pass. A tensor that counts
// apart from its storage keeps them.
class UncountedSteps {
 public:
  explicit UncountedSteps(const Tensor& changed);
  UncountedSteps(const UncountedSteps&) = delete;
  UncountedSteps& operator=(const UncountedSteps&) = delete;
  ~UncountedSteps();

 private:
  StorageImpl* counter_;
  uint32_t before_;
};

namespace entry {

inline uint32_t bits(const Tensor& t) { return t.defined() ? t.impl()->bits : 0; }
inline uint32_t bits(TensorList list) {
  uint32_t b = 0;
  for (const Tensor& t : list) b |= bits(t);
  return b;
}
template <class... Ts>
inline uint32_t all_bits(const Ts&... ts) {
  return (bits(ts) | ...);
}
// Whether one of the tensors is of a rare kind. The entry then leads to its rare_<name> function, which looks at the
// kinds one after the other.
template <class... Ts>
inline bool special(const Ts&... ts) {
  return (all_bits(ts...) & tensor_bit::kSpecial) != 0;
}
template <uint32_t mask, class... Ts>
inline bool special_in(const Ts&... ts) {
  return (all_bits(ts...) & mask) != 0;
}

// The tensor with its lazy conjugation and negation carried out; the tensor itself when there is none.
Tensor plain(const Tensor& t);
std::vector<Tensor> plain(TensorList list);

// Runs an in-place operation on a plain copy of a lazy `self` and writes the result back through it.
const Tensor& through_plain(const Tensor& self, FunctionRef<void(const Tensor&)> body);

// The tensor with which a composite computes in place of the tensor that it is about to change. It is a copy where
// parts of the composite may keep it for the backward pass.
Tensor value_of(const Tensor& self);

// self <- result, for composites: same shape and a castable dtype, or torch's error.
void write_in_place(const char* op, const Tensor& self, const Tensor& result);

// out <- result, for factories. `out` gets the result's shape, without a warning.
void write_new(const Tensor& out, const Tensor& result);

// self <- result or out <- result, where one of the two is of a rare kind.
const Tensor& write_rare(const char* op, const Tensor& self, const Tensor& result);
const Tensor& write_rare_out(const char* op, const Tensor& out, const Tensor& result);

// Refuses tensors of a foreign layout for an operation that no table of ops/layouts/ names, in torch's words.
[[noreturn]] void refuse_layout(const char* op, TensorList inputs);

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

// ---- an alias that stands for its tensor

// The same memory, geometry and history without the names: gradients of what is computed from it reach `t`.
Tensor without_names(const Tensor& t);
std::vector<Tensor> without_names(TensorList list);
// After an operation has changed `alias`, made by without_names(self), in place: its history is self's.
void take_history(const Tensor& self, const Tensor& alias);
// After an operation has made a view of `alias`: it is a view of `self`.
void view_of_original(const Tensor& view, const Tensor& self, const Tensor& alias);
void view_of_original(TensorList views, const Tensor& self, const Tensor& alias);

}  // namespace mica
