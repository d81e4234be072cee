#include "core/entry.h"

#include "core/out.h"
#include "mica/ops.h"

namespace mica {

bool any_defined(const TensorVec& list) {
  for (const Tensor& t : list)
    if (t.defined()) return true;
  return false;
}

std::vector<SavedTensor> save_list(TensorList list) {
  std::vector<SavedTensor> saved;
  saved.reserve(list.size());
  for (const Tensor& t : list) saved.emplace_back(t);
  return saved;
}

TensorVec unpack_list(const std::vector<SavedTensor>& list) {
  TensorVec tensors;
  tensors.reserve(list.size());
  for (const SavedTensor& s : list) tensors.push_back(s.unpack());
  return tensors;
}

std::vector<DimVector> sizes_of(TensorList list) {
  std::vector<DimVector> sizes;
  for (const Tensor& t : list) sizes.emplace_back(t.sizes());
  return sizes;
}

std::vector<DType> dtypes_of(TensorList list) {
  std::vector<DType> dtypes;
  for (const Tensor& t : list) dtypes.push_back(t.dtype());
  return dtypes;
}

namespace entry {

Tensor plain(const Tensor& t) {
  const uint32_t b = bits(t);
  if (!(b & tensor_bit::kSpecial)) return t;
  MICA_CHECK_KIND(!(b & (tensor_bit::kNamed | tensor_bit::kForeignLayout)), NotImplemented,
                  "this operation does not take named, sparse or quantized tensors yet");
  return resolve_neg(resolve_conj(t));
}

std::vector<Tensor> plain(TensorList list) {
  std::vector<Tensor> result;
  for (const Tensor& t : list) result.push_back(plain(t));
  return result;
}

// Writes values into a tensor that is read conjugated or negated, by way of a view that is not.
static void write_below(const Tensor& self, const Tensor& value) {
  Tensor target = self, stored = value;
  if (self.is_conj()) {
    target = mica::_conj(target);
    stored = mica::conj_physical(stored);
  }
  if (self.is_neg()) {
    target = mica::_neg_view(target);
    stored = mica::neg(stored);
  }
  target.copy_(stored);
}

const Tensor& through_plain(const Tensor& self, FunctionRef<void(const Tensor&)> body) {
  if (!(bits(self) & tensor_bit::kSpecial)) {
    body(self);
    return self;
  }
  Tensor copy = plain(self);
  body(copy);
  write_below(self, copy);
  return self;
}

Tensor value_of(const Tensor& self) { return grad_enabled() && self.requires_grad() ? self.clone() : self; }

void write_in_place(const char* op, const Tensor& self, const Tensor& result) {
  MICA_CHECK(self.sizes() == result.sizes(), "output with shape ", self.sizes(), " doesn't match the broadcast shape ",
             result.sizes(), " (", op, ")");
  MICA_CHECK(self.dtype() == result.dtype() || can_cast(result.dtype(), self.dtype()), "result type ",
             info(result.dtype()).legacy, " can't be cast to the desired output type ", info(self.dtype()).legacy);
  self.copy_(result);
}

void write_new(const Tensor& out, const Tensor& result) {
  if (!(out.sizes() == result.sizes())) out.resize_(result.sizes());
  out.copy_(result);
}

void check_out(const char* op, TensorList inputs, std::initializer_list<Tensor> outs) {
  if (grad_enabled()) {
    bool requires_grad = any_requires_grad(inputs);
    for (const Tensor& t : outs) requires_grad = requires_grad || any_requires_grad(t);
    MICA_CHECK(!requires_grad, op,
               "(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
               "requires grad.");
  }
  for (const Tensor& t : outs) check_inplace(t, false);
}

}  // namespace entry
}  // namespace mica
