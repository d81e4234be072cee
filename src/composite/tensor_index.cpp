// x[...] and x[...] = value, for C++ and Python alike: basic indices become one view, tensors go to index and
// index_put_.
#include "dispatch/lowered.h"
#include "mica/autograd.h"
#include "mica/generated/implementations.h"
#include "mica/indexing.h"
#include "shapes/indexing.h"

namespace mica::indexing {

namespace {

using Kind = TensorIndex::Kind;

bool is_mask(const Tensor& t) { return t.dtype() == DType::Bool || t.dtype() == DType::UInt8; }

// How many dimensions of the tensor an entry takes up.
int64_t dims_taken(const TensorIndex& e) {
  switch (e.kind) {
    case Kind::Integer:
    case Kind::Slice:
      return 1;
    case Kind::Tensor:
      return is_mask(e.tensor) ? e.tensor.dim() : 1;
    default:
      return 0;
  }
}

int64_t checked_index(int64_t index, int64_t size, int64_t dim) {
  MICA_CHECK_KIND(index >= -size && index < size, Index, "index ", index, " is out of bounds for dimension ", dim,
                  " with size ", size);
  return index < 0 ? index + size : index;
}

// Builds a view step by step. While autograd records, every step is an operation. Otherwise steps only change sizes and
// strides, and autograd learns of the finished view.
class ViewSteps {
 public:
  // For rare kinds of tensors every step is an operation too, because only the operation's entry knows how to treat
  // them. So it is under a dispatch mode, which has to see operations.
  explicit ViewSteps(const Tensor& x)
      : x_(x),
        recorded_(compute_requires_grad(x) || view_requires_grad(x.impl()) ||
                  (x.impl()->bits & tensor_bit::kSpecialView) || dispatch::active) {}

  void select(int64_t dim, int64_t index, int64_t named) {
    const int64_t at = checked_index(index, x_.sizes()[dim], named);
    x_ = recorded_ ? mica::select(x_, dim, at) : views::select(x_, dim, at);
  }
  void slice(int64_t dim, const Slice& s) {
    if (!s.start && !s.stop && s.step == 1) return;
    x_ = recorded_ ? mica::slice(x_, dim, s.start, s.stop, s.step) : views::slice(x_, dim, s.start, s.stop, s.step);
  }
  void unsqueeze(int64_t dim) { x_ = recorded_ ? mica::unsqueeze(x_, dim) : views::unsqueeze(x_, dim); }

  Tensor finish(const Tensor& original) const {
    if (!recorded_ && !x_.is_same(original)) set_view(x_, original);
    return x_;
  }

 private:
  Tensor x_;
  bool recorded_;
};

// A bool counts as an index into a new dimension of size one: its only element, or none.
Tensor flag_index(bool value, Device device) {
  const TensorOptions options = TensorOptions(DType::Int64).device(device);
  return value ? zeros({1}, options) : empty({0}, options);
}

// Leading dimensions of size one beyond `ndim` are dropped: the target may not have them.
Tensor without_leading_ones(const Tensor& value, int64_t ndim) {
  Tensor v = value;
  while (v.dim() > ndim && v.sizes()[0] == 1) v = v.select(0, 0);
  return v;
}

// The mask, shaped to the target's dimensions, if the index has nothing else; otherwise undefined.
Tensor only_mask(const Indexed& target) {
  if (target.indices.empty() || target.indices.back().dtype() != DType::Bool) return {};
  for (size_t i = 0; i + 1 < target.indices.size(); ++i)
    if (target.indices[i].defined()) return {};
  const Tensor& mask = target.indices.back();
  const auto first = static_cast<int64_t>(target.indices.size()) - 1;
  if (first + mask.dim() > target.self.dim()) return {};
  check_mask_shape(target.self, mask, first);
  DimVector sizes(mask.sizes());
  sizes.resize(target.self.dim() - first, 1);
  return mask.reshape(sizes);
}

}  // namespace

TensorIndex::TensorIndex(const char* ellipsis) : kind(Kind::Ellipsis) {
  MICA_CHECK_KIND(std::string_view(ellipsis) == "...", Value,
                  "Expected \"...\" to represent an ellipsis index, but got \"", ellipsis, "\"");
}

Tensor select(const Tensor& x, int64_t dim, int64_t index, int64_t named) {
  MICA_CHECK_KIND(x.dim() > 0, Index,
                  "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
                  "convert a 0-dim tensor "
                  "to a number");
  return mica::select(x, dim, checked_index(index, x.size(dim), named));
}

Tensor slice(const Tensor& x, int64_t dim, const Slice& s) {
  MICA_CHECK_KIND(s.step != 0, Value, "slice step cannot be zero");
  MICA_CHECK_KIND(x.dim() > 0, Index, "slice() cannot be applied to a 0-dim tensor.");
  if (!s.start && !s.stop && s.step == 1) return mica::alias(x);
  return mica::slice(x, dim, s.start, s.stop, s.step);
}

Indexed apply(const Tensor& x, ArrayRef<TensorIndex> entries) {
  int64_t taken = 0;
  for (const TensorIndex& e : entries) taken += dims_taken(e);
  if (x.dim() == 0 && entries.size() == 1 && taken == 1) {
    if (entries[0].kind == Kind::Integer) return {indexing::select(x, 0, 0, 0), {}};
    if (entries[0].kind == Kind::Slice) return {indexing::slice(x, 0, entries[0].slice), {}};
  }
  MICA_CHECK_KIND(taken <= x.dim(), Index, "too many indices for tensor of dimension ", x.dim());

  ViewSteps view(x);
  std::vector<Tensor> indices;
  int64_t dim = 0, named = 0;  // the present dimension, counted in the view and in x
  int64_t folded = 0;          // dimensions that masks take up beyond their one entry
  auto record = [&](Tensor index) {
    const int64_t covered = is_mask(index) ? index.dim() : 1;
    indices.resize(static_cast<size_t>(dim - folded));
    indices.push_back(std::move(index));
    dim += covered;
    folded += covered - 1;
  };
  auto record_flag = [&](bool value) {
    view.unsqueeze(dim);
    record(flag_index(value, x.device()));
  };
  for (const TensorIndex& e : entries) {
    switch (e.kind) {
      case Kind::None:
        view.unsqueeze(dim++);
        break;
      case Kind::Ellipsis:
        // Only the first ellipsis stands for dimensions.
        dim += x.dim() - taken;
        named += x.dim() - taken;
        taken = x.dim();
        break;
      case Kind::Integer:
        view.select(dim, e.integer, named++);
        break;
      case Kind::Boolean:
        record_flag(e.integer != 0);
        break;
      case Kind::Slice:
        MICA_CHECK_KIND(e.slice.step != 0, Value, "slice step cannot be zero");
        view.slice(dim++, e.slice);
        ++named;
        break;
      case Kind::Tensor:
        if (e.tensor.dim() == 0 && is_integral(e.tensor.dtype()) && !is_mask(e.tensor)) {
          view.select(dim, e.tensor.item().to_int(), named++);
        } else if (e.tensor.dim() == 0 && is_mask(e.tensor)) {
          record_flag(e.tensor.item().to_bool());
        } else {
          named += dims_taken(e);
          record(e.tensor);
        }
        break;
    }
  }
  return {view.finish(x), std::move(indices)};
}

Tensor get(const Tensor& x, ArrayRef<TensorIndex> entries) {
  const Indexed at = apply(x, entries);
  if (!at.indices.empty()) return mica::index(at.self, at.indices);
  return at.self.is_same(x) ? mica::alias(x) : at.self;  // x[...] is not x
}

void assign(const Indexed& target, const Tensor& value) {
  if (target.indices.empty()) {
    const Tensor fitting = without_leading_ones(value, target.self.dim());
    // A single number may lie among the elements that it replaces: x[1] = x[1, 0].
    target.self.copy_(value.numel() == 1 ? apart_from(fitting, target.self) : fitting);
    return;
  }
  if (value.numel() == 1) {  // one number may have any dtype
    if (const Tensor mask = only_mask(target); mask.defined()) {
      target.self.masked_fill_(mask, apart_from(value.reshape({}), target.self));
      return;
    }
  }
  target.self.index_put_(target.indices, without_leading_ones(value, 0));
}

void assign(const Indexed& target, const Scalar& number) {
  const Scalar value = as_one_element(number, target.self.dtype());
  if (target.indices.empty()) {
    target.self.fill_(value);
  } else if (const Tensor mask = only_mask(target); mask.defined()) {
    target.self.masked_fill_(mask, value);
  } else {
    target.self.index_put_(target.indices, scalar_tensor(value, target.self.options()));
  }
}

void set(const Tensor& x, ArrayRef<TensorIndex> entries, const Tensor& value) { assign(apply(x, entries), value); }
void set(const Tensor& x, ArrayRef<TensorIndex> entries, const Scalar& value) { assign(apply(x, entries), value); }

}  // namespace mica::indexing

namespace mica {

Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
  return indexing::get(*this, indices);
}

Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value) {
  indexing::set(*this, indices, value);
  return *this;
}

Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value) {
  indexing::set(*this, indices, value);
  return *this;
}

const Tensor Tensor::operator[](const Tensor& i) const { return index({indexing::TensorIndex(i)}); }

}  // namespace mica
