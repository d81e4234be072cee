// How results, in-place changes and views enter the graph.
#include <algorithm>
#include <atomic>

#include "autograd/copy_slices.h"
#include "autograd/metadata.h"
#include "mica/allocator.h"
#include "mica/core/class_alias.h"
#include "mica/ops.h"

namespace mica {

LockSet view_locks(LockOrder::Views);

void* AutogradMeta::operator new(size_t size) { return cpu_allocate(size); }
void AutogradMeta::operator delete(void* p, size_t size) { cpu_free(p, size); }

AutogradMeta::~AutogradMeta() {
  if (!extras || !extras->retained) return;
  std::lock_guard lock(retained_locks.of(extras->retained.get()));
  extras->retained->owner = nullptr;
}

AutogradMeta& autograd_meta(const Tensor& t) {
  TensorImpl* impl = t.impl();
  if (!impl->autograd) impl->autograd = new AutogradMeta;
  return *impl->autograd;
}

void delete_autograd_meta(AutogradMeta* meta) { delete meta; }

bool view_requires_grad(const TensorImpl* t) {
  const TensorImpl* base = t->base.get();
  return base && (base->requires_grad_leaf || base->has_grad_fn);
}

bool any_requires_grad(TensorList list) {
  return std::any_of(list.begin(), list.end(), [](const Tensor& t) { return any_requires_grad(t); });
}

Tensor (*dispatch::alias_of_class)(const Tensor&) = nullptr;

Tensor bare_alias(const Tensor& t) {
  const TensorImpl* from = t.impl();
  if (Tensor alias = dispatch::class_alias(t); alias.defined()) [[unlikely]]
    return alias;
  TensorImpl* impl =
      TensorImpl::create(from->storage, from->view.dtype, from->view.device, t.sizes(), t.strides(), from->offset);
  impl->bits = from->bits & ~tensor_bit::kWrappedNumber;
  if (from->rare) [[unlikely]] {
    impl->layout = from->layout;
    impl->share_rare_facts(*from);
  }
  return Tensor::adopt(impl);
}

std::string forward_name(const Node& node) {
  std::string name = node.name();
  const size_t suffix = name.rfind("Backward");
  if (suffix != std::string::npos && name.find_first_not_of("0123456789", suffix + 8) == std::string::npos)
    name.resize(suffix);
  return name;
}

namespace {

void note_depth(Node& node) {
  uint64_t deepest = 0;
  for (const Edge& e : node.next_edges)
    if (e.function) deepest = std::max(deepest, e.function->topological);
  node.topological = deepest + 1;
}

void set_edge(const Tensor& t, Ref<Node> node, uint32_t output_nr) {
  AutogradMeta& meta = autograd_meta(t);
  meta.grad_fn = std::move(node);
  meta.output_nr = output_nr;
  t.impl()->has_grad_fn = true;
}

constexpr const char* kMoveBoth =
    " Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both "
    "the view and "
    "the inplace either both inside the ";

// Refuses to change a view in place whose history cannot be rewritten, by itself or through its base.
void check_rewritable(const Tensor& t, bool through_base) {
  using Creation = ViewInfo::Creation;
  const Creation creation = t.impl()->creation;
  if (creation == Creation::Normal) return;
  const char* change =
      through_base ? "its base or another view of its base has been modified inplace" : "is being modified inplace";
  std::string message;
  const AutogradMeta* meta = t.impl()->autograd;
  const bool by_mode = creation == Creation::InInference || creation == Creation::InNoGrad;
  const char* made = "A view was created in";
  std::string of_view;
  if (by_mode && meta && meta->grad_fn) {
    of_view = cat("Output ", meta->output_nr, " of ", forward_name(*meta->grad_fn),
                  " is a view of a view which was created in");
    made = of_view.c_str();
  }
  if (!by_mode && meta && meta->grad_fn) {
    message = cat("Output ", meta->output_nr, " of ", forward_name(*meta->grad_fn), " is a view and ", change, ".");
  } else if (creation == Creation::InCustomFunction || creation == Creation::MultiOutput) {
    message = cat("A view ", change, ".");
  } else if (creation == Creation::InInference) {
    message = cat(made, " inference mode and ", change, " in normal mode.");
  } else {
    message = cat(made, " no_grad mode and ", change, " with grad mode enabled.");
  }
  const char* inside = creation == Creation::InInference ? "inference_mode" : "no_grad";
  switch (creation) {
    case Creation::Normal:
      break;
    case Creation::InNoGrad:
    case Creation::InInference:
      message += cat(kMoveBoth, inside,
                     " block (if you don't want the inplace to be tracked) or both outside (if you want the inplace to "
                     "be tracked).");
      break;
    case Creation::MultiOutput:
      message +=
          " This view is the output of a function that returns multiple views. Such functions do not allow the output "
          "views to be "
          "modified inplace. You should replace the inplace operation by an out-of-place one.";
      break;
    case Creation::InCustomFunction:
      message +=
          " This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
          "logic to handle "
          "view+inplace would override the custom backward associated with the custom Function, leading to incorrect "
          "gradients. This "
          "behavior is forbidden. You can fix this by cloning the output of the custom Function.";
      break;
  }
  fail(std::move(message));
}

enum class Reinterpretation : uint8_t { None, AsReal, AsComplex, Other };

Reinterpretation reinterpretation(const Tensor& self, const Tensor& view) {
  const DType from = self.dtype(), to = view.dtype();
  if (from == to) return Reinterpretation::None;
  if (is_complex(from) && to_real(from) == to) return Reinterpretation::AsReal;
  if (is_complex(to) && to_real(to) == from) return Reinterpretation::AsComplex;
  return Reinterpretation::Other;
}

// How to make a view of another dtype, or with another lazy sign, again. Null where as_strided does.
ViewInfo::Replay reinterpreting_replay(const Tensor& self, const Tensor& view, Reinterpretation how) {
  const uint32_t signs = (self.impl()->bits ^ view.impl()->bits) & tensor_bit::kLazyBits;
  if (how == Reinterpretation::None && signs == 0) return nullptr;
  int64_t start = self.storage_offset();
  if (how == Reinterpretation::AsReal) start *= 2;
  if (how == Reinterpretation::AsComplex) start /= 2;
  return [=, geometry = Geometry(view), skip = view.storage_offset() - start](const Tensor& source) {
    Tensor t = source;
    if (how == Reinterpretation::AsReal) t = view_as_real(t);
    if (how == Reinterpretation::AsComplex) t = view_as_complex(t);
    if (signs & tensor_bit::kConj) t = _conj(t);
    if (signs & tensor_bit::kNeg) t = _neg_view(t);
    if (t.sizes() == geometry.sizes.ref() && t.strides() == geometry.strides.ref() && skip == 0) return t;
    return as_strided(t, geometry.sizes, geometry.strides, t.storage_offset() + skip);
  };
}

// A view of a view is remembered as a view of the base.
ViewInfo::Replay compose(const ViewInfo::Replay& outer, ViewInfo::Replay inner, const Tensor& self,
                         const Tensor& view) {
  if (!inner) {
    return [outer, geometry = Geometry(view), self_offset = self.storage_offset()](const Tensor& base) {
      const Tensor again = outer(base);
      return as_strided(again, geometry.sizes, geometry.strides,
                        geometry.offset - self_offset + again.storage_offset());
    };
  }
  if (outer) return [outer, inner = std::move(inner)](const Tensor& base) { return inner(outer(base)); };
  return [inner = std::move(inner), geometry = Geometry(self),
          base_offset = self.impl()->base->offset](const Tensor& b) {
    return inner(as_strided(b, geometry.sizes, geometry.strides, geometry.offset - base_offset + b.storage_offset()));
  };
}

}  // namespace

Edge gradient_edge(const Tensor& t) {
  if (!t.defined()) return {};
  const TensorImpl* impl = t.impl();
  if (!impl->autograd && !impl->base && !impl->requires_grad_leaf) return {};
  if (Node* fn = t.grad_fn()) return {Ref<Node>(fn), impl->autograd->output_nr};
  if (!impl->requires_grad_leaf) return {};
  return {accumulator_of(t, true), 0};
}

void set_history(const Tensor& result, const Ref<Node>& node) {
  if (node->topological == 0) note_depth(*node);
  const uint32_t output_nr = node->add_input(result);
  if (result.defined()) set_edge(result, node, output_nr);
}

namespace {

const ViewInfo::Replay* replay_of(const TensorImpl* view) {
  const AutogradMeta* meta = view->autograd;
  return meta && meta->extras && meta->extras->replay ? &meta->extras->replay : nullptr;
}

void remember_base(TensorImpl* view, const TensorImpl* self, ViewInfo::Creation creation) {
  if (thread_modes & (mode_bit::kInference | mode_bit::kNoGrad)) [[unlikely]] {
    creation = inference_mode_enabled() ? ViewInfo::Creation::InInference : ViewInfo::Creation::InNoGrad;
  } else if (creation == ViewInfo::Creation::Normal) {
    creation = self->creation;  // Normal, unless self is a view
  }
  view->base = self->base ? self->base : Ref<TensorImpl>(const_cast<TensorImpl*>(self));
  view->creation = creation;
  view->view_version = view->version();
}

}  // namespace

void set_view(const Tensor& view, const Tensor& self, ViewInfo::Creation creation) {
  const TensorImpl *v = view.impl(), *s = self.impl();
  // Usually as_strided reproduces the view: same dtype and lazy signs, here and all the way down to the base.
  const bool plain = v->view.dtype == s->view.dtype && !((v->bits ^ s->bits) & tensor_bit::kLazyBits) &&
                     !(s->base && replay_of(s)) && !(s->bits & tensor_bit::kInference) && v != s;
  if (!plain) [[unlikely]]
    return set_view(view, self, creation, nullptr);
  remember_base(view.impl(), s, creation);
}

void set_view(const Tensor& view, const Tensor& self, ViewInfo::Creation creation, ViewInfo::Replay replay) {
  if (view.is_same(self)) return;
  if (self.is_inference()) {  // a view of it is an inference tensor too, and has no history
    if (view.requires_grad()) autograd::detach_in_place(view);
    return;
  }
  if (!replay) {
    const Reinterpretation how = reinterpretation(self, view);
    if (how == Reinterpretation::Other) return;  // it shows the bits as another type, so no gradient can pass
    replay = reinterpreting_replay(self, view, how);
  }
  if (self.is_view()) {
    const ViewInfo::Replay* before = replay_of(self.impl());
    if (before || replay) replay = compose(before ? *before : nullptr, std::move(replay), self, view);
  }
  if (replay) extras(autograd_meta(view)).replay = std::move(replay);
  remember_base(view.impl(), self.impl(), creation);
}

Node* Tensor::grad_fn() const {
  const auto known = [this] { return impl_->autograd ? impl_->autograd->grad_fn.get() : nullptr; };
  if (!impl_->base) return known();
  // Several threads may ask for the history of one view. A thread that sees the new version also sees what was written
  // before it.
  const std::atomic_ref written_for(impl_->view_version);
  if (impl_->version() == written_for.load(std::memory_order_acquire)) return known();
  if (!impl_->has_grad_fn && !view_requires_grad(impl_.get())) return nullptr;
  AutogradMeta* meta;
  {
    std::lock_guard lock(view_locks.of(impl_.get()));
    meta = &autograd_meta(*this);
  }
  for (;;) {
    const uint32_t version = impl_->version();
    if (version == written_for.load(std::memory_order_acquire)) return meta->grad_fn.get();
    check_rewritable(*this, true);
    // The base was changed since the view was made, so the view's history now comes from the changed base. Operations
    // run here, so no lock is held; if several threads do this at once, the first one's node stays.
    Ref<Node> function;  // at the end the node that was replaced: it dies after the lock is released
    {
      EnableGradGuard record;
      ModeGuard plain(mode_bit::kInference | mode_bit::kSavedTensorHooks, false);
      const Tensor base = this->base();
      const Tensor again = meta->extras && meta->extras->replay ? meta->extras->replay(base)
                                                                : base.as_strided(sizes(), strides(), storage_offset());
      function = Ref<Node>(again.grad_fn());
    }
    std::lock_guard lock(view_locks.of(impl_.get()));
    if (impl_->version() != version || version == written_for.load(std::memory_order_relaxed)) continue;
    if (function) move_retained_grad(*meta, meta->grad_fn.get(), function.get(), 0);
    std::swap(meta->grad_fn, function);
    meta->output_nr = 0;
    // Other threads read the flag without a lock, so it is written only where it changes.
    if (const bool has = static_cast<bool>(meta->grad_fn); has != impl_->has_grad_fn) impl_->has_grad_fn = has;
    written_for.store(version, std::memory_order_release);
    return meta->grad_fn.get();
  }
}

void check_inplace_slow(const Tensor& self, bool requires_grad) {
  MICA_CHECK(!self.is_inference() || inference_mode_enabled(),
             "Inplace update to inference tensor outside InferenceMode is not allowed."
             "You can make a clone to get a normal tensor before doing inplace update."
             "See https://github.com/pytorch/rfcs/pull/17 for more details.");
  if (!requires_grad || !grad_enabled()) return;
  if (self.is_view()) {
    check_rewritable(self, false);
    MICA_CHECK(!self.requires_grad() || self.base().grad_fn(),
               "a view of a leaf Variable that requires grad is being used in an in-place operation.");
  }
  MICA_CHECK(!self.requires_grad() || self.grad_fn(),
             "a leaf Variable that requires grad is being used in an in-place operation.");
}

void rebase_history(const Tensor& self, const Ref<Node>& node) {
  const DType dtype = self.dtype();
  if (!is_floating(dtype) && !is_complex(dtype)) return;
  if (node->topological == 0) note_depth(*node);
  AutogradMeta& meta = autograd_meta(self);
  if (!self.is_view()) {
    const uint32_t output_nr = node->add_input(self);
    move_retained_grad(meta, meta.grad_fn.get(), node.get(), output_nr);
    set_edge(self, node, output_nr);
    return;
  }
  MICA_CHECK(node->inputs.empty(), "Functions which modify views in-place must return a single Variable");
  node->add_input(self);
  const Tensor base = self.base();
  auto slices = Ref<Node>::adopt(new CopySlices(base, self, meta.extras ? meta.extras->replay : nullptr, node));
  note_depth(*slices);
  AutogradMeta& base_meta = autograd_meta(base);
  move_retained_grad(base_meta, base_meta.grad_fn.get(), slices.get(), 0);
  set_edge(base, std::move(slices), 0);
  self.grad_fn();
}

void note_geometry(const Tensor& self, const Tensor& changed) {
  if (const ViewInfo::Replay* before = replay_of(self.impl()))
    extras(autograd_meta(self)).replay = compose(*before, nullptr, self, changed);
}

void rebase_geometry(const Tensor& self, const Ref<Node>& node) {
  if (!self.is_view()) return rebase_history(self, node);
  TensorImpl* impl = self.impl();
  std::atomic_ref(impl->view_version).store(impl->version() - 1, std::memory_order_release);
  self.grad_fn();  // the view is made from its base again, as it lies now
}

}  // namespace mica
