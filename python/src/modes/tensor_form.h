// What a tensor is beside its values, for those who compare a call with an earlier one (tensor_form.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "object.h"

namespace mica::python {

inline constexpr int64_t kMostDims = 64;  // tensors of more have no form

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

// The same with the address, the gradient's address and, for memory that the host reads, how often it was changed.
bool has_facts(const Tensor& t, std::string_view facts);

bool add_tensor_forms(PyObject* module);

}  // namespace mica::python
