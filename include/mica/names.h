// Names of dimensions, and the rules by which an operation's result gets them. "" is a dimension without a name.
#pragma once

#include <initializer_list>
#include <string>
#include <tuple>
#include <vector>

#include "mica/tensor.h"

namespace mica {

using DimNames = std::vector<std::string>;

namespace names {

DimNames of(const Tensor& t);  // one for each dimension
bool any(const DimNames& names);
// Throws unless names are identifiers, as many as dimensions, and none occurs twice.
void check(const DimNames& names, int64_t ndim);
// Gives `t` names, or takes them away (all ""). Nothing is checked.
void set(const Tensor& t, const DimNames& names);
int64_t position(const Tensor& t, std::string_view name);  // the dimension of that name, or torch's error
std::string to_text(const DimNames& names);                // ('N', None)

// ---- rules: the names of a result. ops/layouts/named.toml says which one an operation follows.

DimNames broadcast(std::initializer_list<Tensor> tensors);  // names are broadcast as sizes are
DimNames broadcast_list(TensorList tensors);
inline DimNames same(const Tensor& self) { return of(self); }
inline DimNames none() { return {}; }
DimNames reduced(const Tensor& self, int64_t dim, bool keepdim);
DimNames reduced(const Tensor& self, std::optional<int64_t> dim, bool keepdim);
DimNames reduced(const Tensor& self, IntArrayRef dims, bool keepdim);  // without dims, over all
DimNames reduced(const Tensor& self, std::optional<IntArrayRef> dims, bool keepdim);
DimNames without_dim(const Tensor& self, int64_t dim);
DimNames with_dim(const Tensor& self, int64_t dim);  // the new dimension has no name
DimNames squeezed(const Tensor& self);
DimNames squeezed(const Tensor& self, int64_t dim);
DimNames squeezed(const Tensor& self, IntArrayRef dims);
DimNames swapped(const Tensor& self, int64_t dim0, int64_t dim1);
DimNames transposed(const Tensor& self);
DimNames permuted(const Tensor& self, IntArrayRef dims);
DimNames moved(const Tensor& self, IntArrayRef source, IntArrayRef destination);
DimNames expanded(const Tensor& self, IntArrayRef size);
DimNames flattened(const Tensor& self, int64_t start_dim, int64_t end_dim);
DimNames diagonal(const Tensor& self, int64_t dim1, int64_t dim2);
DimNames joined(TensorList tensors);                                           // cat
DimNames stacked(TensorList tensors, int64_t dim);                             // stack
DimNames product(const Tensor& self, const Tensor& other);                     // matmul, mm, mv, bmm, dot
DimNames added_product(const Tensor& self, const Tensor& a, const Tensor& b);  // addmm and its kind

[[noreturn]] void refuse(const char* op);  // refuses an operation that has no rule, in torch's words

// Gives names to everything that an operation returns.
inline Tensor give(Tensor result, const DimNames& names) {
  if (any(names) && result.defined() && names.size() == static_cast<size_t>(result.dim())) set(result, names);
  return result;
}
std::vector<Tensor> give(std::vector<Tensor> results, const DimNames& names);
template <class... Ts>
std::tuple<Ts...> give(std::tuple<Ts...> results, const DimNames& names) {
  std::apply([&](auto&... each) { (give(each, names), ...); }, results);
  return results;
}
template <class T>
T give(T number, const DimNames&) {
  return number;
}

}  // namespace names
}  // namespace mica
