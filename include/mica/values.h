// Tensors of values that a program has: tensor(1.5), tensor({1, 2, 3}), tensor({{1, 2}, {3, 4}}), tensor(a_vector);
// from_blob for memory that stays the program's.
#pragma once

#include <functional>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "mica/tensor.h"

namespace mica {

namespace detail {
Tensor tensor_of(const void* values, DType dtype, IntArrayRef sizes, DType usual, const TensorOptions& options);

// The dtype of a tensor of Ts without a dtype in the options: integers become int64 and doubles the default dtype, as
// in Python.
template <class T>
DType usual_dtype() {
  if constexpr (std::is_same_v<T, bool>) return DType::Bool;
  if constexpr (std::is_integral_v<T>) return DType::Int64;
  return std::is_same_v<T, double> ? default_dtype() : dtype_v<T>;
}
}  // namespace detail

// A 1-dim tensor with a copy of the values.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(ArrayRef<T> values, const TensorOptions& options = {}) {
  return detail::tensor_of(values.data(), dtype_v<T>, {static_cast<int64_t>(values.size())}, detail::usual_dtype<T>(),
                           options);
}
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(std::initializer_list<T> values, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(values.begin(), values.size()), options);
}
template <class T>
requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)  // a vector of bools has no memory to read
    Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(values), options);
}

// A 0-dim tensor.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(T value, const TensorOptions& options = {}) {
  return detail::tensor_of(&value, dtype_v<T>, {}, detail::usual_dtype<T>(), options);
}

// A 2-dim tensor of rows of one length.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(std::initializer_list<std::initializer_list<T>> rows,
                                               const TensorOptions& options = {}) {
  const size_t columns = rows.size() ? rows.begin()->size() : 0;
  std::vector<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>> values;
  for (const auto& row : rows) {
    MICA_CHECK_KIND(row.size() == columns, Value, "expected sequence of length ", columns, " at dim 1 (got ",
                    row.size(), ")");
    values.insert(values.end(), row.begin(), row.end());
  }
  return detail::tensor_of(values.data(), dtype_v<T>,
                           {static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns)}, detail::usual_dtype<T>(),
                           options);
}

// A tensor over memory that the caller owns and keeps until `deleter` runs, or for good if there is none. Strides count
// elements; without them the memory is contiguous.
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, std::function<void(void*)> deleter, const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, std::function<void(void*)> deleter,
                 const TensorOptions& options = {});

// A copy in pinned host memory, which CUDA copies from and to without a detour; `t` itself if it lies there already.
Tensor pin_memory(const Tensor& t);
bool is_pinned(const Tensor& t);

// What a factory does last: the new tensor is pinned and requires grad if its options say so.
Tensor made_with(Tensor t, const TensorOptions& options);

}  // namespace mica
