// x[...] in C++: x.index({0, Slice(1, 3), None, "...", mask}), with the meaning that the same list has in Python.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "mica/tensor.h"

namespace mica::indexing {

inline constexpr std::nullopt_t None = std::nullopt;
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis{};

// Every step-th element from start up to, not including, stop. A negative step walks backwards and is a view like any
// other.
struct Slice {
  Slice(std::optional<int64_t> start = {}, std::optional<int64_t> stop = {}, std::optional<int64_t> step = {})
      : start(start), stop(stop), step(step.value_or(1)) {}
  std::optional<int64_t> start, stop;
  int64_t step;
};

struct TensorIndex {
  enum class Kind : uint8_t { None, Ellipsis, Integer, Boolean, Slice, Tensor };

  TensorIndex(std::nullopt_t) : kind(Kind::None) {}
  TensorIndex(EllipsisType) : kind(Kind::Ellipsis) {}
  TensorIndex(const char* ellipsis);  // "..."
  template <class T>
  requires std::is_integral_v<T> TensorIndex(T i)
      : kind(std::is_same_v<T, bool> ? Kind::Boolean : Kind::Integer), integer(static_cast<int64_t>(i)) {}
  TensorIndex(Slice s) : kind(Kind::Slice), slice(s) {}
  TensorIndex(Tensor t) : kind(Kind::Tensor), tensor(std::move(t)) {}

  Kind kind;
  int64_t integer = 0;  // also a Boolean
  Slice slice;
  Tensor tensor;
};

// An index of which the view part has been carried out: `self` is the view. `indices` are the other entries, for
// mica::index: one for each dimension (a mask stands for as many as it has), undefined where the whole dimension is
// taken. It is empty if the view is all there is to do.
struct Indexed {
  Tensor self;
  std::vector<Tensor> indices;
};
Indexed apply(const Tensor& x, ArrayRef<TensorIndex> entries);

// The pieces of which apply is made, for callers that know what they have: x[index] and x[slice] along one dimension.
// `named` is the dimension that an error mentions.
Tensor select(const Tensor& x, int64_t dim, int64_t index, int64_t named);
Tensor slice(const Tensor& x, int64_t dim, const Slice& s);

Tensor get(const Tensor& x, ArrayRef<TensorIndex> entries);
void set(const Tensor& x, ArrayRef<TensorIndex> entries, const Tensor& value);
void set(const Tensor& x, ArrayRef<TensorIndex> entries, const Scalar& value);

// Writes a value to what apply returned: the second half of set.
void assign(const Indexed& target, const Tensor& value);
void assign(const Indexed& target, const Scalar& value);

}  // namespace mica::indexing
