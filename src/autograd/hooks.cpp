#include <algorithm>
#include <iterator>

#include "autograd/metadata.h"
#include "mica/ops.h"

namespace mica {

namespace {

// A thread may add hooks to a list that another thread's backward is walking over. A list is changed and copied under
// its lock. Hooks are called, and removed hooks are destroyed, without it.
LockSet hook_locks(LockOrder::Hooks);

template <class Callable>
HookHandle append_hook(HookList<Callable>& list, Callable call, std::string name = {}, uint32_t input_nr = 0) {
  auto record = std::make_shared<HookOf<Callable>>();
  record->call = std::move(call);
  record->name = std::move(name);
  record->input_nr = input_nr;
  HookList<Callable> removed;
  std::lock_guard lock(hook_locks.of(&list));
  const auto gone = std::stable_partition(list.begin(), list.end(), [](const auto& h) { return !h->removed.load(); });
  removed.assign(std::make_move_iterator(gone), std::make_move_iterator(list.end()));
  list.erase(gone, list.end());
  list.push_back(record);
  return HookHandle(record);
}

template <class Record>
std::vector<Record> copy_of(const std::vector<Record>& list) {
  std::lock_guard lock(hook_locks.of(&list));
  return list;
}

NodeHooks& hooks_of(Node& node) { return node.hooks.make(); }

std::atomic<int> walks{0};  // how many walks over lists of hooks are under way

class WalkGuard {
 public:
  WalkGuard() { walks.fetch_add(1, std::memory_order_relaxed); }
  ~WalkGuard() { walks.fetch_sub(1, std::memory_order_relaxed); }
  WalkGuard(const WalkGuard&) = delete;
  WalkGuard& operator=(const WalkGuard&) = delete;
};

// A hook may add or remove hooks while the list is walked. As in torch, the walk is over the hooks that were there when
// it began; changes count from the next walk on.
template <class Callable, class Body>
void for_each_hook(const HookList<Callable>& list, Body body) {
  auto hooks = copy_of(list);
  std::erase_if(hooks, [](const auto& hook) { return hook->removed.load(); });
  if (hooks.empty()) return;
  const WalkGuard walk;
  for (const auto& hook : hooks) body(*hook);
}

void check_hook_result(const std::string& name, const Tensor& before, const Tensor& after) {
  MICA_CHECK(before.dtype() == after.dtype() && before.device().type() == after.device().type(), "hook '", name,
             "' has changed the type of value (was torch.", info(before.dtype()).legacy, "Tensor got torch.",
             info(after.dtype()).legacy, "Tensor)");
  MICA_CHECK(before.device() == after.device(), "hook '", name, "' has changed the device of value (was ",
             before.device(), " got ", after.device(), ")");
  MICA_CHECK(before.sizes() == after.sizes(), "hook '", name, "' has changed the size of value");
}

void call_gradient_hooks(const HookList<GradHook>& list, TensorVec& grads) {
  for_each_hook(list, [&](HookOf<GradHook>& hook) {
    Tensor& gradient = grads[hook.input_nr];
    Tensor replacement = hook.call(gradient);
    if (!replacement.defined()) return;
    MICA_CHECK(gradient.defined(), "can't replace a None gradient with a non-None value");
    check_hook_result(hook.name, gradient, replacement);
    gradient = std::move(replacement);
  });
}

}  // namespace

bool hooks_are_walked() { return walks.load(std::memory_order_relaxed) != 0; }

LockSet retained_locks(LockOrder::RetainedGrads);

void RetainedGrad::deliver(const Tensor& gradient) {
  for (;;) {
    Tensor before;
    {
      std::lock_guard lock(retained_locks.of(this));
      if (!owner) return;
      std::lock_guard reading(gradient_locks.of(owner));
      before = owner->grad;
    }
    Tensor sum = before.defined() ? add(before, gradient) : clone(gradient);
    std::lock_guard lock(retained_locks.of(this));
    if (!owner) return;
    std::lock_guard writing(gradient_locks.of(owner));
    // Another thread may have added a gradient meanwhile. Then the sum is computed again.
    if (owner->grad.is_same(before)) return std::swap(owner->grad, sum);
  }
}

void run_tensor_hooks(Node& node, TensorVec& grads) {
  if (node.is_accumulator) {
    const Tensor& leaf = static_cast<AccumulateGrad&>(node).variable;
    if (const auto& rare = leaf.impl()->autograd->extras) call_gradient_hooks(rare->leaf_hooks, grads);
    return;
  }
  if (!node.hooks) return;
  call_gradient_hooks(node.hooks->tensor_hooks, grads);
  for (const auto& retained : copy_of(node.hooks->retained))
    if (const Tensor& gradient = grads[retained->input_nr]; gradient.defined()) retained->deliver(gradient);
}

void run_post_accumulate_hooks(const AutogradExtras& extras, const Tensor& leaf) {
  for_each_hook(extras.post_accumulate_hooks, [&](HookOf<PostAccumulateHook>& hook) { hook.call(leaf); });
}

void run_pre_hooks(Node& node, TensorVec& grads) {
  for_each_hook(node.hooks->pre_hooks, [&](HookOf<NodePreHook>& hook) {
    hook.call(grads);
    MICA_CHECK(grads.size() == node.inputs.size(), "a pre-hook of ", node.name(),
               " has changed the number of gradients");
  });
}

void run_post_hooks(Node& node, TensorVec& grad_inputs, const TensorVec& grad_outputs) {
  const size_t count = grad_inputs.size();
  for_each_hook(node.hooks->post_hooks, [&](HookOf<NodePostHook>& hook) {
    hook.call(grad_inputs, grad_outputs);
    MICA_CHECK(grad_inputs.size() == count, "a hook of ", node.name(), " has changed the number of gradients");
  });
}

namespace autograd {

HookHandle register_hook(const Tensor& t, GradHook hook, std::string name) {
  MICA_CHECK(
      t.requires_grad(),
      "cannot register a hook on a tensor that doesn't require gradient: call requires_grad_() on it, or on what "
      "it is computed from");
  if (Node* fn = t.grad_fn()) {
    return append_hook(hooks_of(*fn).tensor_hooks, std::move(hook), std::move(name),
                       static_cast<uint32_t>(t.output_nr()));
  }
  return append_hook(extras(autograd_meta(t)).leaf_hooks, std::move(hook), std::move(name));
}

HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, PostAccumulateHook hook) {
  MICA_CHECK(leaf.requires_grad(), "cannot register a hook on a tensor that doesn't require gradient");
  MICA_CHECK(leaf.is_leaf(), "post accumulate grad hooks cannot be registered on non-leaf tensors");
  return append_hook(extras(autograd_meta(leaf)).post_accumulate_hooks, std::move(hook));
}

HookHandle register_prehook(Node& node, NodePreHook hook) {
  return append_hook(hooks_of(node).pre_hooks, std::move(hook));
}

HookHandle register_posthook(Node& node, NodePostHook hook) {
  return append_hook(hooks_of(node).post_hooks, std::move(hook));
}

}  // namespace autograd

void Tensor::retain_grad() const {
  MICA_CHECK(requires_grad(),
             "can't retain_grad on Tensor that has requires_grad=False: call requires_grad_() on what it is computed "
             "from");
  Node* fn = grad_fn();
  if (!fn || retains_grad()) return;
  AutogradMeta& meta = autograd_meta(*this);
  auto retained = std::make_shared<RetainedGrad>();
  retained->owner = &meta;
  retained->input_nr = meta.output_nr;
  {
    auto& list = hooks_of(*fn).retained;
    std::lock_guard lock(hook_locks.of(&list));
    list.push_back(retained);
  }
  extras(meta).retained = std::move(retained);
  meta.retains_grad = true;
}

bool Tensor::retains_grad() const { return impl_->autograd && impl_->autograd->retains_grad; }

// After an in-place change, the retained gradient is the one with respect to the changed tensor. Other hooks stay where
// they are.
void move_retained_grad(AutogradMeta& meta, Node* from, Node* to, uint32_t output_nr) {
  if (!meta.retains_grad || from == to) return;
  std::shared_ptr<RetainedGrad> retained = meta.extras->retained;
  if (from && from->hooks) {
    std::lock_guard lock(hook_locks.of(&from->hooks->retained));
    std::erase(from->hooks->retained, retained);
  }
  retained->input_nr = output_nr;
  auto& list = hooks_of(*to).retained;
  std::lock_guard lock(hook_locks.of(&list));
  list.push_back(std::move(retained));
}

}  // namespace mica
