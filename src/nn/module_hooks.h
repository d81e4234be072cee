// The hooks of one module, or of all.
#pragma once

#include "mica/autograd.h"
#include "mica/nn/module.h"

namespace mica::nn::detail {

template <class Callable>
struct Hook final : HookRecord {
  Callable call;
  bool always_call = false;
};
template <class Callable>
using Hooks = std::vector<std::shared_ptr<Hook<Callable>>>;

struct ModuleHooks {
  explicit ModuleHooks(Module* module) : module(module) {}

  Module* module;  // null when the module is gone: the graph may keep this object longer
  Hooks<ForwardPreHook> forward_pre;
  Hooks<ForwardHook> forward;
  Hooks<BackwardPreHook> backward_pre;
  Hooks<BackwardHook> backward;
  Hooks<StateDictPreHook> state_dict_pre;
  Hooks<StateDictHook> state_dict;
  Hooks<LoadStateDictPreHook> load_state_dict_pre;
  Hooks<LoadStateDictPostHook> load_state_dict_post;

  static ModuleHooks& of(Module& module) { return *shared(module); }
  static const std::shared_ptr<ModuleHooks>& shared(Module& module);  // makes the object if the module has none
  static const ModuleHooks* find(const Module& module) { return module.hooks_.get(); }
  std::shared_ptr<ModuleHooks> copy_for(Module* other) const;
};

// The hooks that have not been removed.
template <class Callable>
void add_live(Hooks<Callable>& to, const Hooks<Callable>& from) {
  for (const auto& hook : from)
    if (!hook->removed) to.push_back(hook);
}
// A copy of a module's own hooks of one kind, since a hook may change the module's list.
template <class Callable>
Hooks<Callable> own_hooks(const Module& module, Hooks<Callable> ModuleHooks::*kind) {
  Hooks<Callable> found;
  if (const ModuleHooks* own = ModuleHooks::find(module)) add_live(found, own->*kind);
  return found;
}

}  // namespace mica::nn::detail
