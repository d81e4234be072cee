// Tensor's autograd methods.
#include "autograd/metadata.h"

namespace mica {

const Tensor& Tensor::requires_grad_(bool value) const {
  if (value) {
    MICA_CHECK(is_floating_point() || is_complex(),
               "only Tensors of floating point dtype can require gradients, but this one has torch.", dtype(),
               ": convert it with .float() first");
    MICA_CHECK(!is_inference() || inference_mode_enabled(),
               "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.");
  }
  if (grad_fn()) {
    MICA_CHECK(value,
               "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
               "subgraph that doesn't require differentiation use var_no_grad = var.detach().");
    return *this;
  }
  if (value) autograd_meta(*this);
  impl_->requires_grad_leaf = value;
  return *this;
}

Tensor Tensor::grad() const {
  const AutogradMeta* meta = impl_->autograd;
  if (!meta) return {};
  std::lock_guard lock(gradient_locks.of(meta));
  return meta->grad;
}

void Tensor::set_grad(const Tensor& g) const {
  Tensor replaced = g;  // at the end the old gradient: it dies after the lock is released
  if (!g.defined()) {
    if (!impl_->autograd) return;
    std::lock_guard lock(gradient_locks.of(impl_->autograd));
    std::swap(impl_->autograd->grad, replaced);
    return;
  }
  MICA_CHECK(!g.is_same(*this), "can't assign Variable as its own grad");
  const DType wanted = grad_dtype(*this);
  MICA_CHECK(wanted == kAnyDType || g.dtype() == wanted, "attempting to assign a gradient with dtype '", g.dtype(),
             "' to a tensor with grad_dtype '", info(wanted == kAnyDType ? dtype() : wanted).legacy,
             "'. The gradient must match the tensor's grad_dtype (defaults to the tensor's dtype).");
  MICA_CHECK(g.device().type() == device().type(), "attempting to assign a gradient with device type '",
             device_type_name(g.device().type()), "' to a tensor with device type '", device_type_name(device().type()),
             "'. Please ensure that the gradient and the tensor are on the same device");
  MICA_CHECK(g.device() == device(), "attempting to assign a gradient located on device with index '",
             int{g.device().index()}, "' to a tensor located on device with index '", int{device().index()},
             "'. Please ensure that the gradient and the tensor are on the same device");
  MICA_CHECK(g.sizes() == sizes(), "attempting to assign a gradient of size '", g.sizes(), "' to a tensor of size '",
             sizes(), "'. Please ensure that the gradient and the tensor are the same size");
  AutogradMeta& meta = autograd_meta(*this);
  std::lock_guard lock(gradient_locks.of(&meta));
  std::swap(meta.grad, replaced);
}

DType grad_dtype(const Tensor& leaf) {
  const AutogradMeta* meta = leaf.impl()->autograd;
  if (!meta || !meta->extras || meta->extras->grad_dtype == DType::Undefined) return leaf.dtype();
  return meta->extras->grad_dtype;
}

void set_grad_dtype(const Tensor& leaf, DType dtype) {
  if (const Tensor gradient = leaf.grad(); gradient.defined() && dtype != kAnyDType)
    MICA_CHECK(gradient.dtype() == dtype, "Cannot set grad_dtype to '", info(dtype).legacy,
               "' because there is already a gradient with dtype '", gradient.dtype(),
               "'. Please clear the gradient (.grad = None) before changing grad_dtype, or choose its dtype.");
  AutogradMeta& meta = autograd_meta(leaf);
  extras(meta).grad_dtype = dtype;
  if (const Ref<Node> accumulator = accumulator_of(leaf, false)) accumulator->inputs[0].dtype = dtype;
}

int64_t Tensor::output_nr() const {
  grad_fn();
  return impl_->autograd ? impl_->autograd->output_nr : 0;
}

void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                      TensorList inputs) const {
  autograd::backward({this, 1}, {&gradient, 1}, retain_graph, create_graph, inputs);
}

Tensor Tensor::tensor_data() const {
  Tensor data = bare_alias(*this);
  if (!is_inference()) data.impl()->set_own_version(Ref<VersionCounter>::adopt(new VersionCounter(0)));
  return data;
}

namespace autograd {

void detach_in_place(const Tensor& t) {
  MICA_CHECK(!t.is_view(),
             "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for "
             "training, and "
             "gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot "
             "be called on "
             "these gradients. To fix this error, please refer to the Optimizer.zero_grad() function in "
             "torch/optim/optimizer.py as "
             "the solution.");
  TensorImpl* impl = t.impl();
  impl->requires_grad_leaf = false;
  impl->has_grad_fn = false;
  if (!impl->autograd) return;
  impl->autograd->output_nr = 0;
  impl->autograd->retains_grad = false;
  impl->autograd->grad_fn = nullptr;
}

void set_data(const Tensor& t, const Tensor& data) {
  TensorImpl* to = t.impl();
  const TensorImpl* from = data.impl();
  MICA_CHECK(!t.requires_grad() || is_floating(data.dtype()) || mica::is_complex(data.dtype()),
             "data set to a tensor that requires gradients must be floating point or complex dtype");
  MICA_CHECK(
      !((to->bits ^ from->bits) & tensor_bit::kForeignLayout) && to->layout == from->layout,
      "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type.");
  // A gradient of the old shape or dtype does not fit any more, so the next graph makes a new accumulator.
  AutogradMeta* meta = to->autograd;
  if (meta && meta->accumulator &&
      (t.dtype() != data.dtype() || t.device() != data.device() || t.sizes() != data.sizes()))
    meta->accumulator = nullptr;
  // Assigning data does not change the old memory, so the tensor continues its own count of versions.
  const uint32_t version = to->version();
  Ref<VersionCounter> counter = to->own_version();
  if (!counter && from->storage != to->storage) counter = Ref<VersionCounter>::adopt(new VersionCounter(version));
  to->share_rare_facts(*from);
  to->set_own_version(std::move(counter));
  to->layout = from->layout;
  const DimVector sizes(data.sizes()), strides(data.strides());
  to->storage = from->storage;
  to->view.dtype = from->view.dtype;
  to->view.device = from->view.device;
  constexpr uint32_t kept = tensor_bit::kOwnVersion;
  to->bits = (to->bits & kept) | (from->bits & ~kept);
  to->set_geometry(sizes, strides, from->offset);
}

}  // namespace autograd
}  // namespace mica
