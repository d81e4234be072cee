// Tensor: a reference to a strided view of a storage. Copying one copies the reference, as in Python.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "mica/core/accessor.h"
#include "mica/core/array_ref.h"
#include "mica/core/options.h"
#include "mica/core/scalar.h"
#include "mica/core/tensor_impl.h"
#include "mica/error.h"
#include "mica/generator.h"

namespace mica {

class Tensor;
class Node;
class HookHandle;
using TensorList = ArrayRef<Tensor>;
using OptionalIntArrayRef = std::optional<IntArrayRef>;

namespace indexing {
struct TensorIndex;
}

// Whether a view's base has joined the graph since the view was made (src/autograd).
bool view_requires_grad(const TensorImpl* t);

class Tensor {
 public:
  Tensor() = default;  // undefined: also how an absent optional tensor is passed
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  static Tensor adopt(TensorImpl* impl) { return Tensor(Ref<TensorImpl>::adopt(impl)); }

  // Assignment to a variable makes it refer to another tensor. Assignment to an expression fills the tensor: x[0] = y
  // writes into x.
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  void operator=(const Tensor& value) &&;
  void operator=(const Scalar& value) &&;

  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const = delete;  // ambiguous between defined() and item<bool>()
  TensorImpl* impl() const { return impl_.get(); }
  TensorImpl* operator->() const { return impl_.get(); }
  const TensorView& view_of() const {
    if (impl_->storage && impl_->storage->moved()) [[unlikely]]
      impl_->follow_storage();
    return impl_->view;
  }
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }

  // geometry
  int64_t dim() const { return impl_->view.ndim; }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return impl_->view.numel; }
  IntArrayRef sizes() const { return {impl_->view.sizes, static_cast<size_t>(dim())}; }
  IntArrayRef strides() const { return {impl_->view.strides, static_cast<size_t>(dim())}; }
  int64_t size(int64_t d) const;  // negative d counts from the end; checked
  int64_t stride(int64_t d) const;
  int64_t storage_offset() const { return impl_->offset; }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  bool is_non_overlapping_and_dense() const;
  MemoryFormat suggest_memory_format() const;

  // type and place
  DType dtype() const { return impl_->view.dtype; }
  DType scalar_type() const { return dtype(); }
  Device device() const { return impl_->view.device; }
  Layout layout() const { return impl_->layout; }
  bool is_sparse() const { return layout() == Layout::SparseCoo; }
  bool is_sparse_csr() const { return layout() == Layout::SparseCsr; }
  bool is_quantized() const { return impl_->bits & tensor_bit::kQuantized; }
  int64_t element_size() const { return mica::element_size(dtype()); }
  int64_t itemsize() const { return element_size(); }
  int64_t nbytes() const { return numel() * element_size(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_meta() const { return device().is_meta(); }
  bool is_floating_point() const { return is_floating(dtype()); }
  bool is_complex() const { return mica::is_complex(dtype()); }
  bool is_signed() const { return info(dtype()).is_signed; }
  bool is_conj() const { return impl_->bits & tensor_bit::kConj; }
  bool is_neg() const { return impl_->bits & tensor_bit::kNeg; }
  bool is_inference() const { return impl_->bits & tensor_bit::kInference; }
  TensorOptions options() const { return TensorOptions(dtype()).device(device()); }

  // memory
  const Storage& storage() const { return impl_->storage; }
  void* data_ptr() const { return view_of().data; }
  template <class T>
  T* data_ptr() const {
    MICA_CHECK(dtype() == dtype_v<T>, "expected scalar type ", dtype_v<T>, " but found ", dtype());
    return static_cast<T*>(view_of().data);
  }
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<std::remove_const_t<T>>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  // x.accessor<float, 2>()[i][j]: elements of a tensor in memory that the program can read (mica/core/accessor.h).
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const& {
    return {accessible<T, N>(), sizes().data(), strides().data()};
  }
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() && = delete;  // deleted: it would point into a tensor that is gone
  template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, PtrTraits> packed_accessor32() const {
    MICA_CHECK(numel() <= INT32_MAX, "numel needs to be smaller than int32_t max; otherwise, please use ",
               "packed_accessor64");
    return {accessible<T, N>(), sizes().data(), strides().data()};
  }
  template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, PtrTraits> packed_accessor64() const {
    return {accessible<T, N>(), sizes().data(), strides().data()};
  }
  Scalar item() const;
  template <class T>
  T item() const {
    return item().to<T>();
  }

  // autograd (src/autograd)
  [[gnu::always_inline]] bool requires_grad() const {
    return impl_->requires_grad_leaf || impl_->has_grad_fn || (impl_->base && view_requires_grad(impl_.get()));
  }
  const Tensor& requires_grad_(bool value = true) const;
  Tensor grad() const;
  void set_grad(const Tensor& g) const;
  Node* grad_fn() const;
  bool is_leaf() const { return !impl_->has_grad_fn && (!impl_->base || !grad_fn()); }
  int64_t output_nr() const;
  void backward(const Tensor& gradient = {}, std::optional<bool> retain_graph = std::nullopt, bool create_graph = false,
                TensorList inputs = {}) const;
  void retain_grad() const;
  bool retains_grad() const;
  // `hook` takes the gradient and may return another one. The handle that is returned takes the hook off
  // (mica/autograd.h).
  template <class Hook>
  HookHandle register_hook(Hook hook) const;
  Tensor tensor_data() const;  // shares memory, no history, its own version counter: torch's x.data
  bool is_view() const { return static_cast<bool>(impl_->base); }
  Tensor base() const { return Tensor(impl_->base); }
  uint32_t version() const { return impl_->version(); }

  // names of dimensions (mica/names.h); "" is a dimension without a name
  bool has_names() const { return impl_->bits & tensor_bit::kNamed; }
  std::vector<std::string> names() const;
  Tensor rename(const std::vector<std::string>& names) const;  // an empty list drops them
  const Tensor& rename_(const std::vector<std::string>& names) const;
  Tensor refine_names(const std::vector<std::string>& names) const;  // "..." stands for the names in between
  Tensor align_to(const std::vector<std::string>& names) const;      // "..." stands for the dimensions not mentioned
  Tensor align_as(const Tensor& other) const;

  // sparse layouts (mica/generated/layers/sparse.h)
  Tensor coalesce() const;
  bool is_coalesced() const;
  Tensor indices() const;
  Tensor values() const;
  Tensor _indices() const;
  Tensor _values() const;
  Tensor crow_indices() const;
  Tensor col_indices() const;
  Tensor ccol_indices() const;
  Tensor row_indices() const;
  int64_t sparse_dim() const;
  int64_t dense_dim() const;
  int64_t _nnz() const;
  Tensor to_dense(std::optional<DType> dtype = std::nullopt, std::optional<bool> masked_grad = std::nullopt) const;
  Tensor to_sparse() const;
  Tensor to_sparse(int64_t sparse_dim) const;
  Tensor to_sparse_csr(std::optional<int64_t> dense_dim = std::nullopt) const;
  Tensor to_sparse_csc(std::optional<int64_t> dense_dim = std::nullopt) const;
  Tensor to_sparse_bsr(IntArrayRef blocksize, std::optional<int64_t> dense_dim = std::nullopt) const;
  Tensor to_sparse_bsc(IntArrayRef blocksize, std::optional<int64_t> dense_dim = std::nullopt) const;
  Tensor sparse_mask(const Tensor& mask) const;

  // quantized tensors (mica/generated/layers/quantized.h)
  Tensor dequantize() const;
  Tensor int_repr() const;
  double q_scale() const;
  int64_t q_zero_point() const;
  Tensor q_per_channel_scales() const;
  Tensor q_per_channel_zero_points() const;
  int64_t q_per_channel_axis() const;

  // indexing
  Tensor index(std::initializer_list<indexing::TensorIndex> indices) const;
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value);
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value);
  Tensor operator[](int64_t i) const;
  const Tensor operator[](const Tensor& i) const;  // a copy; const, because an assignment to it would be lost

  std::string str() const;  // as Python prints it

  Tensor operator-() const;
  Tensor& operator+=(const Tensor& o);
  Tensor& operator+=(const Scalar& o);
  Tensor& operator-=(const Tensor& o);
  Tensor& operator-=(const Scalar& o);
  Tensor& operator*=(const Tensor& o);
  Tensor& operator*=(const Scalar& o);
  Tensor& operator/=(const Tensor& o);
  Tensor& operator/=(const Scalar& o);

#include "mica/generated/tensor_methods.inc"

 private:
  template <class T, size_t N>
  T* accessible() const {
    static_assert(N > 0, "accessor is used for indexing tensor, for scalars use *data_ptr<T>()");
    MICA_CHECK(dim() == static_cast<int64_t>(N), "TensorAccessor expected ", N, " dims but tensor has ", dim());
    return data_ptr<T>();
  }

  Ref<TensorImpl> impl_;
};

void append_to(std::string& s, Layout layout);    // "torch.sparse_coo"
void append_to(std::string& s, const Tensor& t);  // "float32[2, 3]": for error messages

}  // namespace mica
