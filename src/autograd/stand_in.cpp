// Aliases that stand for a named tensor while an operation runs without names. Gradients of what is computed from an
// alias reach the tensor itself, and the graph gets no additional node.
#include "autograd/metadata.h"
#include "core/entry.h"
#include "core/rare_facts.h"

namespace mica {

Tensor without_names(const Tensor& t) {
  if (!t.defined() || !t.has_names()) return t;
  Node* fn = t.grad_fn();
  Tensor alias = bare_alias(t);
  TensorImpl* impl = alias.impl();
  const TensorImpl* from = t.impl();
  impl->bits &= ~tensor_bit::kNamed;
  impl->rare->names.clear();
  impl->base = from->base;
  impl->creation = from->creation;
  impl->view_version = from->view_version;
  const AutogradMeta* known = from->autograd;
  if (known && known->extras && known->extras->replay) extras(autograd_meta(alias)).replay = known->extras->replay;
  if (fn) {
    AutogradMeta& meta = autograd_meta(alias);
    meta.grad_fn = Ref<Node>(fn);
    meta.output_nr = known->output_nr;
    impl->has_grad_fn = true;
  } else if (from->requires_grad_leaf) {
    AutogradMeta& meta = autograd_meta(alias);
    extras(meta).foreign_accumulator = accumulator_of(t, true);
    meta.accumulator = extras(meta).foreign_accumulator.get();
    impl->requires_grad_leaf = true;
  }
  return alias;
}

std::vector<Tensor> without_names(TensorList list) {
  std::vector<Tensor> result;
  result.reserve(list.size());
  for (const Tensor& t : list) result.push_back(without_names(t));
  return result;
}

void take_history(const Tensor& self, const Tensor& alias) {
  if (self.is_same(alias)) return;
  TensorImpl *to = self.impl(), *from = alias.impl();
  if (!(self.sizes() == alias.sizes()) || !(self.strides() == alias.strides()) || !(to->storage == from->storage)) {
    to->storage = from->storage;
    to->set_geometry(alias.sizes(), alias.strides(), from->offset);
  }
  if (self.is_view() || !from->has_grad_fn) return;  // a view takes its history from its base
  AutogradMeta& meta = autograd_meta(self);
  if (meta.grad_fn == from->autograd->grad_fn) return;
  move_retained_grad(meta, meta.grad_fn.get(), from->autograd->grad_fn.get(), from->autograd->output_nr);
  meta.grad_fn = from->autograd->grad_fn;
  meta.output_nr = from->autograd->output_nr;
  to->has_grad_fn = true;
}

void view_of_original(const Tensor& view, const Tensor& self, const Tensor& alias) {
  if (view.impl()->base.get() == alias.impl()) view.impl()->base = Ref<TensorImpl>(self.impl());
}

void view_of_original(TensorList views, const Tensor& self, const Tensor& alias) {
  for (const Tensor& view : views) view_of_original(view, self, alias);
}

}  // namespace mica
