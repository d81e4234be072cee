// Tensors of values that a program has: tensor({1, 2, 3}), tensor(a_vector).
#pragma once

#include <initializer_list>
#include <type_traits>
#include <vector>

#include "mica/tensor.h"

namespace mica {

namespace detail {
Tensor tensor_of(const void* values, DType dtype, size_t count, DType usual, const TensorOptions& options);
}

// A 1-dim tensor with a copy of the values. Without a dtype in the options, integers become int64 and doubles the
// default dtype, as in Python.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(ArrayRef<T> values, const TensorOptions& options = {}) {
  const DType usual = std::is_same_v<T, bool>     ? DType::Bool
                      : std::is_integral_v<T>     ? DType::Int64
                      : std::is_same_v<T, double> ? default_dtype()
                                                  : dtype_v<T>;
  return detail::tensor_of(values.data(), dtype_v<T>, values.size(), usual, options);
}
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(std::initializer_list<T> values, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(values.begin(), values.size()), options);
}
template <class T>
requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)  // of bools, a vector has no memory to read
    Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(values), options);
}

}  // namespace mica
