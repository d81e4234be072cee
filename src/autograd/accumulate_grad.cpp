#include <thread>

#include "autograd/metadata.h"
#include "inspect/observe.h"
#include "mica/ops.h"

namespace mica {

namespace {

// Guards only the pointer from a leaf to its accumulator: held for a few instructions.
class AccumulatorLock {
 public:
  explicit AccumulatorLock(AutogradMeta& meta) : flag_(meta.accumulator_lock) {
    while (flag_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  AccumulatorLock(const AccumulatorLock&) = delete;
  AccumulatorLock& operator=(const AccumulatorLock&) = delete;
  ~AccumulatorLock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag& flag_;
};

// A leaf's gradient has the leaf's strides if those are dense, and is row-major otherwise.
bool has_layout_for(const Tensor& gradient, const Tensor& leaf) {
  if (!leaf.is_non_overlapping_and_dense()) return gradient.is_contiguous();
  if (gradient.impl()->contiguous && leaf.impl()->contiguous) return true;
  for (int64_t d = 0; d < leaf.dim(); ++d)
    if (leaf.sizes()[d] != 1 && gradient.strides()[d] != leaf.strides()[d]) return false;
  return true;
}

Tensor clone_with_layout_for(const Tensor& gradient, const Tensor& leaf) {
  if (has_layout_for(gradient, leaf) && gradient.is_non_overlapping_and_dense()) return clone(gradient);
  if (!leaf.is_non_overlapping_and_dense()) return clone(gradient, MemoryFormat::Contiguous);
  Tensor copy = empty_strided(leaf.sizes(), leaf.strides(), gradient.options());
  copy.copy_(gradient);
  return copy;
}

// Takes over the gradient's memory if nobody else can see it; otherwise returns undefined and leaves the gradient
// alone.
Tensor steal(Tensor& gradient, const Tensor& leaf, uint32_t expected_references) {
  const TensorImpl* impl = gradient.impl();
  if (impl->use_count() > expected_references || !has_layout_for(gradient, leaf)) return {};
  if (impl->bits & (tensor_bit::kSpecial | tensor_bit::kInference)) return {};
  if (!impl->autograd && !impl->base) {
    // One reference from each tensor that views the memory.
    if (impl->storage && impl->storage->use_count() > 1) return {};
    return expected_references == 1 ? std::move(gradient) : bare_alias(gradient);
  }
  // A view holds its base, and the base the memory: only without the view can be seen who else holds it.
  if (expected_references > 1) return {};
  Tensor bare = bare_alias(gradient);
  gradient = {};
  if (bare.storage() && bare.storage()->use_count() > 1) {
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
}

AccumulateGrad::~AccumulateGrad() {
  AutogradMeta& meta = *variable.impl()->autograd;
  AccumulatorLock lock(meta);
  if (meta.accumulator == this) meta.accumulator = nullptr;
}

Ref<Node> accumulator_of(const Tensor& leaf, bool create) {
  AutogradMeta* meta = leaf.impl()->autograd;
  if (!meta) {
    if (!create) return nullptr;
    meta = &autograd_meta(leaf);
  }
  {
    AccumulatorLock lock(*meta);
    if (meta->accumulator && meta->accumulator->retain_unless_dead()) return Ref<Node>::adopt(meta->accumulator);
  }
  if (!create) return nullptr;
  auto made = Ref<Node>::adopt(new AccumulateGrad(leaf));
  AccumulatorLock lock(*meta);
  if (meta->accumulator && meta->accumulator->retain_unless_dead()) return Ref<Node>::adopt(meta->accumulator);
  meta->accumulator = made.get();
  return made;
}

std::mutex& accumulation_mutex(const TensorImpl* t) {
  static std::mutex mutexes[64];
  return mutexes[(reinterpret_cast<uintptr_t>(t) >> 6) % 64];
}

void AccumulateGrad::apply(TensorVec& grads, TensorVec&) {
  Tensor& gradient = grads[0];
  if (!gradient.defined() || !variable.requires_grad()) return;
  const TensorImpl* leaf = variable.impl();
  AutogradMeta& meta = *leaf->autograd;
  const bool keeps_copy = hooks && !hooks->post_hooks.empty();
  {
    Tensor replaced;  // dies after the lock is released: its memory may belong to Python
    std::lock_guard lock(accumulation_mutex(leaf));
    if (!meta.grad.defined()) {
      Tensor taken;
      if (!grad_enabled()) taken = steal(gradient, variable, keeps_copy ? 2 : 1);
      meta.grad = taken.defined() ? std::move(taken) : clone_with_layout_for(gradient, variable);
    } else if (!grad_enabled()) {
      meta.grad.add_(gradient);
    } else {
      replaced = add(meta.grad, gradient);
      std::swap(replaced, meta.grad);
    }
  }
  if (inspect::recording_memory.load(std::memory_order_relaxed)) [[unlikely]] {
    inspect::mark_memory(variable, inspect::MemoryKind::Parameter);
    inspect::mark_memory(meta.grad, inspect::MemoryKind::Gradient);
  }
  if (meta.extras) {
    const auto& list = meta.extras->post_accumulate_hooks;
    for (size_t i = 0; i < list.size(); ++i)
      if (auto hook = list[i]; !hook->removed) hook->call(variable);
  }
}

}  // namespace mica
