#include "mica/nn/hooks.h"

#include <mutex>

#include "mica/custom_function.h"
#include "mica/core/fork.h"
#include "mica/warning.h"
#include "nn/module_hooks.h"

namespace mica::nn {

namespace detail {

std::atomic<bool> all_modules_are_hooked{false};

namespace {

struct HooksOfAll {
  std::mutex mutex;
  HeldOverFork held{mutex, LockOrder::Hooks};
  ModuleHooks hooks{nullptr};
};
HooksOfAll& hooks_of_all() {
  static HooksOfAll all;
  return all;
}
[[maybe_unused]] HooksOfAll& made_at_load = hooks_of_all();  // a fork must not come while it is made

template <class Callable>
HookHandle add(Hooks<Callable>& hooks, Callable call, bool prepend = false, bool always_call = false) {
  MICA_CHECK_KIND(call, Value, "a hook must be a function, but is empty");
  std::erase_if(hooks, [](const auto& each) { return each->removed.load(); });
  auto hook = std::make_shared<Hook<Callable>>();
  hook->call = std::move(call);
  hook->always_call = always_call;
  hooks.insert(prepend ? hooks.begin() : hooks.end(), hook);
  return HookHandle(hook);
}

template <class Callable>
HookHandle add_for_all(Hooks<Callable> ModuleHooks::*kind, Callable call, bool always_call = false) {
  HooksOfAll& all = hooks_of_all();
  Hooks<Callable> before;  // removed functions of the program die after the lock is released
  const std::lock_guard lock(all.mutex);
  before = all.hooks.*kind;
  HookHandle handle = add(all.hooks.*kind, std::move(call), false, always_call);
  all_modules_are_hooked = true;
  return handle;
}

// The hooks that act on one call, in order.
struct CallHooks {
  Hooks<ForwardPreHook> forward_pre;
  Hooks<ForwardHook> forward;
  Hooks<BackwardPreHook> backward_pre;
  Hooks<BackwardHook> backward;

  explicit CallHooks(const Module& module) {
    if (all_modules_are_hooked) {
      HooksOfAll& all = hooks_of_all();
      ModuleHooks removed(nullptr);  // functions of the program die after the lock is released
      const std::lock_guard lock(all.mutex);
      take(all.hooks);
      if (empty()) {
        std::swap(all.hooks, removed);
        all_modules_are_hooked = false;
      }
    }
    if (const ModuleHooks* own = ModuleHooks::find(module)) take(*own);
  }
  void take(const ModuleHooks& hooks) {
    add_live(forward_pre, hooks.forward_pre);
    add_live(forward, hooks.forward);
    add_live(backward_pre, hooks.backward_pre);
    add_live(backward, hooks.backward);
  }
  bool empty() const { return forward_pre.empty() && forward.empty() && backward_pre.empty() && backward.empty(); }
};

// Passes tensors on, and gives them one node.
struct PassOn : autograd::Function<PassOn> {
  static TensorVec forward(autograd::AutogradContext* context, const TensorVec& tensors) {
    TensorVec constant;
    for (const Tensor& t : tensors)
      if (!t.requires_grad()) constant.push_back(t);
    context->mark_non_differentiable(std::move(constant));
    context->set_materialize_grads(false);
    return tensors;
  }
  static TensorVec backward(autograd::AutogradContext*, TensorVec grads) { return grads; }
};

// The backward hooks of one call. The call's inputs pass through one node, its outputs through another. Gradients that
// reach the output node are kept, after the pre-hooks; when gradients leave the input node, the hooks see both.
class BackwardCall : public std::enable_shared_from_this<BackwardCall> {
 public:
  BackwardCall(std::shared_ptr<ModuleHooks> owner, Hooks<BackwardPreHook> pre_hooks, Hooks<BackwardHook> hooks)
      : owner_(std::move(owner)), pre_hooks_(std::move(pre_hooks)), hooks_(std::move(hooks)) {}

  void pass_inputs(TensorVec& inputs) {
    input_count_ = inputs.size();
    inputs_ = pass_on(inputs, &BackwardCall::leave_inputs);
  }
  void pass_outputs(TensorVec& outputs) {
    output_count_ = outputs.size();
    outputs_ = pass_on(outputs, &BackwardCall::reach_outputs);
  }

 private:
  using Positions = std::vector<size_t>;

  // Sends the tensors that need a gradient through a node. Returns their positions, none if no tensor needs one.
  Positions pass_on(TensorVec& values, void (BackwardCall::*hook)(TensorVec&, const TensorVec&)) {
    TensorVec tensors;
    Positions positions;
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i].defined()) {
        tensors.push_back(values[i]);
        positions.push_back(i);
      }
    if (!compute_requires_grad(TensorList(tensors))) return {};
    const TensorVec passed = PassOn::apply(tensors);
    Node* node = nullptr;
    for (size_t i = 0; i < positions.size(); ++i) {
      values[positions[i]] = passed[i];
      if (passed[i].grad_fn()) node = passed[i].grad_fn();
    }
    autograd::register_posthook(*node, [self = shared_from_this(), hook](TensorVec& in, const TensorVec& out) {
      if (self->owner_->module) ((*self).*hook)(in, out);
    });
    return positions;
  }

  static TensorVec spread(const Positions& positions, const TensorVec& values, size_t count) {
    TensorVec all(count);
    for (size_t i = 0; i < positions.size(); ++i) all[positions[i]] = values[i];
    return all;
  }

  void leave_inputs(TensorVec& grad_inputs, const TensorVec&) {
    if (!grad_outputs_) return;  // no gradient has reached the outputs in this pass
    TensorVec grads = spread(inputs_, grad_inputs, input_count_);
    for (const auto& hook : hooks_) {
      hook->call(*owner_->module, grads, *grad_outputs_);
      MICA_CHECK(grads.size() == input_count_, "Backward hook returned an invalid number of grad_input, got ",
                 grads.size(), ", but expected ", input_count_);
    }
    grad_outputs_.reset();
    for (size_t i = 0; i < inputs_.size(); ++i) grad_inputs[i] = grads[inputs_[i]];
  }

  void reach_outputs(TensorVec& grad_inputs, const TensorVec& grad_outputs) {
    TensorVec grads = spread(outputs_, grad_outputs, output_count_);
    for (const auto& hook : pre_hooks_) {
      hook->call(*owner_->module, grads);
      MICA_CHECK(grads.size() == output_count_, "Backward pre hook returned an invalid number of grad_output, got ",
                 grads.size(), ", but expected ", output_count_);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) grad_inputs[i] = grads[outputs_[i]];
    if (!inputs_.empty()) {
      grad_outputs_ = std::move(grads);
      return;
    }
    // No input needs a gradient, so no gradient will leave the input node: the hooks run now.
    if (!hooks_.empty())
      warn(
          "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
          "require gradients.");
    for (const auto& hook : hooks_) {
      TensorVec nothing(input_count_);
      hook->call(*owner_->module, nothing, grads);
      for (const Tensor& t : nothing)
        MICA_CHECK(!t.defined(),
                   "Backward hook for Modules where no input requires gradient should always return None or None for "
                   "all gradients.");
    }
  }

  std::shared_ptr<ModuleHooks> owner_;
  Hooks<BackwardPreHook> pre_hooks_;
  Hooks<BackwardHook> hooks_;
  size_t input_count_ = 0, output_count_ = 0;
  Positions inputs_, outputs_;
  std::optional<TensorVec> grad_outputs_;
};

}  // namespace

TensorVec call_with_hooks(Module& module, TensorVec inputs, const Forward& forward) {
  const CallHooks hooks(module);
  const size_t input_count = inputs.size();
  TensorVec outputs;
  size_t called = 0;  // how many forward hooks were called
  try {
    for (const auto& hook : hooks.forward_pre) {
      hook->call(module, inputs);
      MICA_CHECK(inputs.size() == input_count, "a forward pre-hook of ", module.name(), " left ", inputs.size(),
                 " inputs, but the call has ", input_count);
    }
    std::shared_ptr<BackwardCall> backward;
    if (!hooks.backward.empty() || !hooks.backward_pre.empty()) {
      backward = std::make_shared<BackwardCall>(ModuleHooks::shared(module), hooks.backward_pre, hooks.backward);
      backward->pass_inputs(inputs);
    }
    outputs = forward(inputs);
    const size_t output_count = outputs.size();
    for (const auto& hook : hooks.forward) {
      ++called;
      hook->call(module, inputs, outputs);
      MICA_CHECK(outputs.size() == output_count, "a forward hook of ", module.name(), " left ", outputs.size(),
                 " outputs, but the call has ", output_count);
    }
    if (backward) backward->pass_outputs(outputs);
  } catch (...) {
    for (; called < hooks.forward.size(); ++called) {
      if (!hooks.forward[called]->always_call) continue;
      try {
        hooks.forward[called]->call(module, inputs, outputs);
      } catch (const std::exception& error) {
        warn(cat("module forward hook with always_call raised an exception that was silenced as another error was ",
                 "raised in forward: ", error.what()));
      }
    }
    throw;
  }
  return outputs;
}

Tensor call_with_hooks(Module& module, const Tensor& x, Step step) {
  return call_with_hooks(module, TensorVec{x},
                         [&](const TensorVec& inputs) { return TensorVec{step(module, inputs[0])}; })[0];
}

const std::shared_ptr<ModuleHooks>& ModuleHooks::shared(Module& module) {
  if (!module.hooks_) module.hooks_ = std::make_shared<ModuleHooks>(&module);
  return module.hooks_;
}

template <class Callable>
static Hooks<Callable> copies(const Hooks<Callable>& hooks) {
  Hooks<Callable> made;
  for (const auto& hook : hooks)
    if (!hook->removed) add(made, hook->call, false, hook->always_call);
  return made;
}
std::shared_ptr<ModuleHooks> ModuleHooks::copy_for(Module* other) const {
  auto copy = std::make_shared<ModuleHooks>(other);
  copy->forward_pre = copies(forward_pre);
  copy->forward = copies(forward);
  copy->backward_pre = copies(backward_pre);
  copy->backward = copies(backward);
  copy->state_dict_pre = copies(state_dict_pre);
  copy->state_dict = copies(state_dict);
  copy->load_state_dict_pre = copies(load_state_dict_pre);
  copy->load_state_dict_post = copies(load_state_dict_post);
  return copy;
}

}  // namespace detail

using detail::add;
using detail::ModuleHooks;

HookHandle register_module_forward_pre_hook(ForwardPreHook hook) {
  return detail::add_for_all(&ModuleHooks::forward_pre, std::move(hook));
}
HookHandle register_module_forward_hook(ForwardHook hook, bool always_call) {
  return detail::add_for_all(&ModuleHooks::forward, std::move(hook), always_call);
}
HookHandle register_module_full_backward_pre_hook(BackwardPreHook hook) {
  return detail::add_for_all(&ModuleHooks::backward_pre, std::move(hook));
}
HookHandle register_module_full_backward_hook(BackwardHook hook) {
  return detail::add_for_all(&ModuleHooks::backward, std::move(hook));
}

HookHandle Module::register_forward_pre_hook(ForwardPreHook hook, HookPlace place) {
  return add(ModuleHooks::of(*this).forward_pre, std::move(hook), place.prepend);
}
HookHandle Module::register_forward_hook(ForwardHook hook, ForwardHookPlace place) {
  return add(ModuleHooks::of(*this).forward, std::move(hook), place.prepend, place.always_call);
}
HookHandle Module::register_full_backward_pre_hook(BackwardPreHook hook, HookPlace place) {
  return add(ModuleHooks::of(*this).backward_pre, std::move(hook), place.prepend);
}
HookHandle Module::register_full_backward_hook(BackwardHook hook, HookPlace place) {
  return add(ModuleHooks::of(*this).backward, std::move(hook), place.prepend);
}
HookHandle Module::register_state_dict_pre_hook(StateDictPreHook hook) {
  return add(ModuleHooks::of(*this).state_dict_pre, std::move(hook));
}
HookHandle Module::register_state_dict_post_hook(StateDictHook hook) {
  return add(ModuleHooks::of(*this).state_dict, std::move(hook));
}
HookHandle Module::register_load_state_dict_pre_hook(LoadStateDictPreHook hook) {
  return add(ModuleHooks::of(*this).load_state_dict_pre, std::move(hook));
}
HookHandle Module::register_load_state_dict_post_hook(LoadStateDictPostHook hook) {
  return add(ModuleHooks::of(*this).load_state_dict_post, std::move(hook));
}

Module::~Module() {
  if (hooks_) hooks_->module = nullptr;
}

}  // namespace mica::nn
