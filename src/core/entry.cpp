#include "core/entry.h"

#include <cctype>

#include "core/out.h"
#include "core/rare_facts.h"
#include "core/sequence.h"
#include "mica/names.h"
#include "mica/ops.h"
#include "mica/warning.h"

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

UncountedSteps::UncountedSteps(const Tensor& changed)
    : counter_(changed.impl()->own_version() ? nullptr : changed.impl()->storage.get()),
      before_(counter_ ? counter_->version() : 0) {}

UncountedSteps::~UncountedSteps() {
  if (counter_ && counter_->version() != before_) counter_->set_version(before_);
}

namespace entry {

Tensor plain(const Tensor& t) {
  const uint32_t b = bits(t);
  if (!(b & tensor_bit::kLazyBits)) return t;
  return resolve_neg(resolve_conj(t));
}

std::vector<Tensor> plain(TensorList list) {
  std::vector<Tensor> result;
  for (const Tensor& t : list) result.push_back(plain(t));
  return result;
}

// Writes values into a tensor that is read conjugated or negated, through a view without these bits.
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
  if (!(bits(self) & tensor_bit::kLazyBits)) {
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
  MICA_CHECK(self.dtype() == result.dtype() || std::string_view(op) != "float_power_",
             "the base given to float_power_ has dtype ", info(self.dtype()).legacy,
             " but the operation's result requires dtype ", info(result.dtype()).legacy);
  MICA_CHECK(self.dtype() == result.dtype() || can_cast(result.dtype(), self.dtype()), "result type ",
             info(result.dtype()).legacy, " can't be cast to the desired output type ", info(self.dtype()).legacy);
  self.copy_(result);
}

void write_new(const Tensor& out, const Tensor& result) {
  if (!(out.sizes() == result.sizes())) out.resize_(result.sizes());
  out.copy_(result);
}

void write_sequence(const Tensor& out, const Tensor& sequence, bool warns) {
  if (out.numel() == sequence.numel()) return write_new(out, sequence.view(out.sizes()));
  if (warns && out.numel() > 0) {
    warn(cat("The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
             " which does not match the computed number of elements ", sequence.numel(),
             ". Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor of "
             "shape (",
             sequence.numel(), ",)."));
  }
  write_new(out, sequence);
}

// A sparse tensor takes over the parts, the shape and the history of `result`.
static void replace_parts(const char* op, const Tensor& self, const Tensor& result) {
  MICA_CHECK(self.sizes() == result.sizes(), "output with shape ", self.sizes(), " doesn't match the broadcast shape ",
             result.sizes(), " (", op, ")");
  MICA_CHECK(self.layout() == result.layout(), op, "(): the result of layout ", result.layout(),
             " cannot be written into a tensor of layout ", self.layout());
  MICA_CHECK(self.dtype() == result.dtype() || can_cast(result.dtype(), self.dtype()), "result type ",
             info(result.dtype()).legacy, " can't be cast to the desired output type ", info(self.dtype()).legacy);
  const bool needs = compute_requires_grad(self, result);
  check_inplace(self, needs);
  const Tensor value = result.dtype() == self.dtype() ? result : result.to(self.dtype());
  if (value.is_same(self)) return;
  self.impl()->rare->sparse = value.impl()->rare->sparse;
  mark_changed(self);
  if (!needs) return;
  // The empty storage counts the changes. A node that has saved `value` must not see the changes of `self` in its
  // count.
  const auto own = self.impl()->storage;
  take_history(self, value);
  self.impl()->storage = own;
}

// The functions that torch applies in place only where no index repeats: those of one element that are not linear.
static bool wants_coalesced(std::string_view op) {
  for (const std::string_view name :
       {"abs_",   "asin_",  "asinh_", "atan_",  "atanh_",   "ceil_",  "deg2rad_",   "erf_", "erfinv_",
        "expm1_", "floor_", "frac_",  "log1p_", "rad2deg_", "relu_",  "round_",     "sgn_", "sign_",
        "sin_",   "sinh_",  "sqrt_",  "tan_",   "tanh_",    "trunc_", "nan_to_num_"})
    if (op == name) return true;
  return false;
}

const Tensor& write_rare(const char* op, const Tensor& self, const Tensor& result) {
  if (bits(self) & tensor_bit::kSparse) {
    MICA_CHECK(self.layout() != Layout::SparseCoo || self.impl()->rare->sparse->coalesced || !wants_coalesced(op), op,
               " requires coalesced input");
    replace_parts(op, self, result);
  } else {
    write_in_place(op, self, result);
  }
  return self;
}

const Tensor& write_rare_out(const char* op, const Tensor& out, const Tensor& result) {
  if (bits(out) & tensor_bit::kSparse) {
    if (!(out.sizes() == result.sizes()) && result.layout() == out.layout()) {
      DimVector none(result.sizes().size(), 0);
      out.impl()->set_geometry(result.sizes(), none, 0);
    }
    replace_parts(op, out, result);
    return out;
  }
  MICA_CHECK(!(bits(result) & tensor_bit::kSparse), op, "(): the result is sparse (layout ", result.layout(),
             ") and cannot be written into a strided out");
  const DimNames given = names::of(result);
  if (names::any(given) || out.has_names()) {
    const Tensor alias = without_names(out);
    write_out(op, alias, without_names(result));
    take_history(out, alias);
    names::set(out, given);
  } else {
    {
      const UncountedSteps steps(out);
      write_out(op, out, result);
    }
    mark_changed(out);
  }
  return out;
}

void refuse_layout(const char* op, TensorList inputs) {
  const char* kind = "";
  std::string device = "CPU";
  for (const Tensor& t : inputs) {
    const uint32_t b = bits(t);
    if (!(b & tensor_bit::kForeignLayout)) continue;
    kind = b & tensor_bit::kQuantized ? "Quantized" : t.layout() == Layout::SparseCoo ? "Sparse" : "SparseCsr";
    if (t.is_meta()) {
      device = "Meta";
    } else {
      device = device_type_name(t.device().type());
      for (char& c : device) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    break;
  }
  fail(ErrorKind::NotImplemented,
       cat("Could not run 'aten::", op, "' with arguments from the '", kind, device,
           "' backend. This could be because the operator doesn't exist for this backend: ",
           *kind == 'Q' ? "dequantize() the tensor first" : "to_dense() the tensor first", "."));
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
