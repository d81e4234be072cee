#include <thread>

#include "autograd/metadata.h"
#include "core/observe.h"
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
  if ((gradient.impl()->bits | leaf.impl()->bits) & tensor_bit::kForeignLayout) return clone(gradient);
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
  // The parts of a sparse gradient are never changed, only replaced: a bare alias can share them.
  if (impl->bits & tensor_bit::kSparse) [[unlikely]]
    return bare_alias(gradient);
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

std::mutex& gradient_mutex(const AutogradMeta& meta) {
  static std::mutex mutexes[64];
  return mutexes[(reinterpret_cast<uintptr_t>(&meta) >> 6) % 64];
}

namespace {

// A sparse gradient and a dense one make a dense one, which cannot be written into the sparse one's memory.
bool becomes_dense(const Tensor& grad, const Tensor& addend) {
  return (grad.impl()->bits & tensor_bit::kSparse) && addend.layout() == Layout::Strided;
}

// Other threads may read, set or clear the leaf's gradient meanwhile: what was seen of it is looked at again before it
// is replaced.
void add_to_gradient(AutogradMeta& meta, const Tensor& leaf, Tensor& gradient, bool keeps_copy) {
  Tensor first;  // what a leaf without a gradient gets: the incoming gradient itself, or a copy
  for (;;) {
    const Tensor& addend = first.defined() ? first : gradient;
    Tensor before;
    {
      std::lock_guard lock(gradient_mutex(meta));
      if (meta.grad.defined()) {
        if (!grad_enabled() && !becomes_dense(meta.grad, addend)) return static_cast<void>(meta.grad.add_(addend));
        before = meta.grad;
      } else if (first.defined()) {
        return std::swap(meta.grad, first);
      }
    }
    if (!before.defined()) {
      if (!grad_enabled()) first = steal(gradient, leaf, keeps_copy ? 2 : 1);
      if (!first.defined()) first = clone_with_layout_for(gradient, leaf);
      continue;
    }
    Tensor sum = becomes_dense(before, addend) ? add(addend, before) : add(before, addend);
    std::lock_guard lock(gradient_mutex(meta));
    if (meta.grad.is_same(before)) return std::swap(meta.grad, sum);
  }
}

}  // namespace

void AccumulateGrad::apply(TensorVec& grads, TensorVec&) {
  if (!grads[0].defined() || !variable.requires_grad()) return;
  AutogradMeta& meta = *variable.impl()->autograd;
  add_to_gradient(meta, variable, grads[0], hooks && !hooks->post_hooks.empty());
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
