// What a replayed function has read (state.cpp), for those who replay calls in C.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "object.h"

namespace mica::python {

inline constexpr int64_t kMostDims = 64;  // tensors of more have no form

// Whether two values are the same object, or equal numbers or texts. It runs no code of the program's.
bool is_same_value(PyObject* now, PyObject* before);

bool is_snapshot(PyObject* object);
bool snapshot_holds(PyObject* snapshot);  // nothing that it has records of is another now

// What a tensor is but for its values, its address and its history: an operation that is given tensors of the same
// forms does the same with them, unless it looks at values.
class TensorForm {
 public:
  explicit TensorForm(const Tensor& t);  // of at most kMostDims dimensions
  std::string_view bytes() const { return {reinterpret_cast<const char*>(facts_.data()), size_ * sizeof(int64_t)}; }

 private:
  size_t size_ = 0;
  std::array<int64_t, 3 + 2 * kMostDims> facts_;
};
bool has_form(const Tensor& t, std::string_view form);
bool has_attributes(PyObject* tensor);  // that a program has set: they are no part of the form

}  // namespace mica::python
