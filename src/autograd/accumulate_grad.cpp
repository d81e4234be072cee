#include "autograd/accumulation.h"
#include "autograd/metadata.h"
#include "core/observe.h"
#include "core/rare_facts.h"
#include "mica/core/dispatch.h"
#include "mica/core/recording.h"
#include "mica/ops.h"

namespace mica {

LockSet gradient_locks(LockOrder::Gradients);

namespace {

// A leaf's gradient has the leaf's strides if those are dense, and is row-major otherwise.
bool has_layout_for(const Tensor& gradient, const Tensor& leaf) {
  if (!leaf.is_non_overlapping_and_dense()) return gradient.is_contiguous();
  if (gradient.impl()->contiguous && leaf.impl()->contiguous) return true;
  for (int64_t d = 0; d < leaf.dim(); ++d)
    if (leaf.sizes()[d] != 1 && gradient.strides()[d] != leaf.strides()[d]) return false;
  return true;
}

// Of a class, a mode or a class is asked for such a tensor.
Tensor empty_for(const Tensor& gradient, const Tensor& leaf) {
  if (dispatch::active) return new_empty_strided(gradient, leaf.sizes(), leaf.strides());
  return empty_strided(leaf.sizes(), leaf.strides(), gradient.options());
}

Tensor clone_with_layout_for(const Tensor& gradient, const Tensor& leaf) {
  if ((gradient.impl()->bits | leaf.impl()->bits) & tensor_bit::kForeignLayout) return clone(gradient);
  if (grad_enabled() && leaf.is_non_overlapping_and_dense()) {  // programs see in its graph that it is a copy
    Tensor copy = empty_for(gradient, leaf);
    return copy.copy_(gradient);
  }
  if (has_layout_for(gradient, leaf) && gradient.is_non_overlapping_and_dense()) return clone(gradient);
  if (!leaf.is_non_overlapping_and_dense()) return clone(gradient, MemoryFormat::Contiguous);
  Tensor copy = empty_for(gradient, leaf);
  copy.copy_(gradient);
  return copy;
}

// Takes over the gradient's memory if nobody else can see it; otherwise returns undefined and leaves the gradient
// alone.
Tensor steal(Tensor& gradient, const Tensor& leaf, uint32_t expected_references) {
  const TensorImpl* impl = gradient.impl();
  // A sparse gradient's parts are taken over with it: programs see them, so that no two leaves may share them.
  if (impl->bits & tensor_bit::kSparse) [[unlikely]] {
    if (impl->use_count() > expected_references) return {};
    const SparseParts& parts = sparse_parts(gradient);
    const bool dense = parts.indices.is_contiguous() && parts.values.is_contiguous();
    return dense ? bare_alias(gradient) : Tensor();
  }
  if (impl->use_count() > expected_references || !has_layout_for(gradient, leaf)) return {};
  if (impl->bits & (tensor_bit::kSpecial | tensor_bit::kInference)) return {};
  if (!impl->autograd && !impl->base) {
    // One reference from each tensor that views the memory.
    if (impl->storage && recording::users(*impl->storage) > 1) return {};
    return expected_references == 1 ? std::move(gradient) : bare_alias(gradient);
  }
  // A view holds its base, and the base holds the memory. Who else holds it can only be seen without the view.
  if (expected_references > 1) return {};
  Tensor bare = bare_alias(gradient);
  gradient = {};
  if (bare.storage() && recording::users(*bare.storage()) > 1) {
    gradient = std::move(bare);
    return {};
  }
  return bare;
}

}  // namespace

AccumulateGrad::AccumulateGrad(const Tensor& leaf) : variable(leaf) {
  sequence = UINT64_MAX;
  topological = 1;
  is_accumulator = true;
  add_input(leaf);
  inputs[0].dtype = grad_dtype(leaf);
}

AccumulateGrad::~AccumulateGrad() {
  AutogradMeta& meta = *variable.impl()->autograd;
  std::lock_guard lock(gradient_locks.of(&meta));
  if (meta.accumulator == this) meta.accumulator = nullptr;
}

Ref<Node> accumulator_of(const Tensor& leaf, bool create) {
  AutogradMeta* meta = leaf.impl()->autograd;
  if (!meta) {
    if (!create) return nullptr;
    meta = &autograd_meta(leaf);
  }
  {
    std::lock_guard lock(gradient_locks.of(meta));
    if (meta->accumulator && meta->accumulator->retain_unless_dead()) return Ref<Node>::adopt(meta->accumulator);
  }
  if (!create) return nullptr;
  auto made = Ref<Node>::adopt(new AccumulateGrad(leaf));
  std::lock_guard lock(gradient_locks.of(meta));
  if (meta->accumulator && meta->accumulator->retain_unless_dead()) return Ref<Node>::adopt(meta->accumulator);
  meta->accumulator = made.get();
  return made;
}

namespace {

// A sparse gradient and a dense one make a dense one, which cannot be written into the sparse one's memory.
bool becomes_dense(const Tensor& grad, const Tensor& addend) {
  return (grad.impl()->bits & tensor_bit::kSparse) && addend.layout() == Layout::Strided;
}

Tensor current_gradient(const AutogradMeta& meta) {
  std::lock_guard lock(gradient_locks.of(&meta));
  return meta.grad;
}

// Puts `next` in the place of `before`, unless the program has changed the gradient since. The old gradient dies with
// the caller's variable, after the lock is released.
bool replace_gradient(AutogradMeta& meta, const Tensor& before, Tensor& next) {
  std::lock_guard lock(gradient_locks.of(&meta));
  if (!meta.grad.is_same(before)) return false;
  std::swap(meta.grad, next);
  return true;
}

// No other thread adds to this leaf meanwhile, but a program may read, set or clear the gradient.
void add_to_gradient(AutogradMeta& meta, const Tensor& leaf, Tensor& gradient, bool keeps_copy) {
  Tensor first;  // the first gradient of a leaf: the incoming one itself, or a copy
  for (;;) {
    const Tensor before = current_gradient(meta);
    if (before.defined()) {
      const Tensor& addend = first.defined() ? first : gradient;
      const bool dense = becomes_dense(before, addend);
      if (!grad_enabled() && !dense) return static_cast<void>(before.add_(addend));
      Tensor sum = dense ? add(addend, before) : add(before, addend);
      if (replace_gradient(meta, before, sum)) return;
      continue;
    }
    if (!first.defined() && !grad_enabled()) first = steal(gradient, leaf, keeps_copy ? 2 : 1);
    if (!first.defined()) first = clone_with_layout_for(gradient, leaf);
    if (replace_gradient(meta, before, first)) return;
  }
}

}  // namespace

void AccumulateGrad::apply(TensorVec& grads, TensorVec&) {
  if (!grads[0].defined() || !variable.requires_grad()) return;
  AutogradMeta& meta = *variable.impl()->autograd;
  const bool keeps_copy = hooks && !hooks->post_hooks.empty();
  // Most gradients are a leaf's first, and nobody else sees their memory: such a one is put where it belongs, under one
  // lock.
  bool placed = false;
  if (!keeps_copy && !grad_enabled()) {
    if (Tensor first = steal(grads[0], variable, 1); first.defined()) {
      placed = place_first(meta, first);
      if (!placed) grads[0] = std::move(first);
    }
  }
  if (!placed)
    accumulate(meta, grads[0], [&](Tensor& gradient) {
      add_to_gradient(meta, variable, gradient, keeps_copy && &gradient == &grads[0]);
    });
  if (inspect::recording_memory.load(std::memory_order_relaxed)) [[unlikely]] {
    inspect::mark_memory(variable, inspect::MemoryKind::Parameter);
    inspect::mark_memory(current_gradient(meta), inspect::MemoryKind::Gradient);
  }
  if (meta.extras) run_post_accumulate_hooks(*meta.extras, variable);
}

}  // namespace mica
