// The states of modules: writing them, loading them, and cloning a module with its state.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "mica/generator.h"
#include "mica/ops.h"
#include "nn/module_hooks.h"

namespace mica::nn {

using detail::ModuleHooks;
using detail::own_hooks;

// ---- saving

NamedTensors Module::state_dict() const {
  NamedTensors state;
  save_part(state, "");
  return state;
}

void Module::save_part(NamedTensors& state, const std::string& prefix) const {
  auto& self = const_cast<Module&>(*this);  // hooks get a module that they may change
  for (const auto& hook : own_hooks(*this, &ModuleHooks::state_dict_pre)) hook->call(self, prefix);
  MICA_CHECK(!has_uninitialized_params(), "the parameters of ", name(), prefix.empty() ? "" : " at ", prefix,
             " have no shape yet: call the module once, and they take it from its input");
  for (const Entry& e : parameters_)
    if (e.tensor.defined()) state.emplace_back(prefix + e.name, e.tensor.detach());
  for (const Entry& e : buffers_)
    if (e.tensor.defined() && e.persistent) state.emplace_back(prefix + e.name, e.tensor.detach());
  for (const auto& [name, child] : modules_) child->save_part(state, prefix + name + ".");
  for (const auto& hook : own_hooks(*this, &ModuleHooks::state_dict)) hook->call(self, state, prefix);
}

// ---- loading

struct Module::Loading {
  IncompatibleKeys keys;
  std::vector<std::string> mismatches;
  std::vector<std::pair<Tensor, Tensor>> copies;  // to, from
  std::vector<std::pair<Module*, detail::Hooks<LoadStateDictPostHook>>> post_hooks;

  void check(const Module& module, bool strict) const;
};

// Finds the tensors in the part of a state that belongs to this module and those below it.
void Module::load_part(NamedTensors part, const std::string& prefix, Loading& loading) {
  prepare_load(part, prefix);
  for (const auto& hook : own_hooks(*this, &ModuleHooks::load_state_dict_pre)) hook->call(*this, part, prefix);
  std::unordered_map<std::string_view, Tensor> given;
  for (const auto& [name, tensor] : part) given[name] = tensor;
  if (has_uninitialized_params()) {
    for (const auto kind : {&Module::parameters_, &Module::buffers_})
      for (const Entry& e : this->*kind)
        if (const auto found = given.find(prefix + e.name); found != given.end())
          materialize(e.tensor, found->second.sizes());
    members_replaced();
  }
  std::unordered_set<std::string> known;
  const auto take = [&](const Entry& e) {
    if (!e.tensor.defined() || !e.persistent) return;
    const std::string name = prefix + e.name;
    known.insert(name);
    const auto found = given.find(name);
    if (found == given.end()) {
      loading.keys.missing_keys.push_back(name);
      return;
    }
    Tensor value = found->second;
    // Older files hold single numbers in this form.
    if (e.tensor.dim() == 0 && value.sizes() == IntArrayRef{1}) value = value[0];
    if (value.sizes() == e.tensor.sizes())
      loading.copies.emplace_back(e.tensor.detach(), value);
    else
      loading.mismatches.push_back(cat("size mismatch for ", name, ": copying a param with shape torch.Size(",
                                       value.sizes(), ") from checkpoint, the shape in current model is torch.Size(",
                                       e.tensor.sizes(), ")."));
  };
  for (const Entry& e : parameters_) take(e);
  for (const Entry& e : buffers_) take(e);

  std::vector<NamedTensors> of_children(modules_.size());
  for (const auto& [name, tensor] : part) {
    if (!name.starts_with(prefix)) continue;
    const size_t dot = name.find('.', prefix.size());
    const std::string first = name.substr(prefix.size(), dot - prefix.size());
    const auto child = dot == std::string::npos ? modules_.end()
                                                : std::find_if(modules_.begin(), modules_.end(),
                                                               [&](const auto& m) { return m.first == first; });
    if (child != modules_.end())
      of_children[static_cast<size_t>(child - modules_.begin())].emplace_back(name, tensor);
    else if (!known.contains(name))
      loading.keys.unexpected_keys.push_back(name);
  }
  for (size_t i = 0; i < modules_.size(); ++i)
    modules_[i].second->load_part(std::move(of_children[i]), prefix + modules_[i].first + ".", loading);
  if (auto hooks = own_hooks(*this, &ModuleHooks::load_state_dict_post); !hooks.empty())
    loading.post_hooks.emplace_back(this, std::move(hooks));
}

static std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

void Module::Loading::check(const Module& module, bool strict) const {
  std::string problems;
  if (strict && !keys.missing_keys.empty())
    problems += cat("\n\tMissing key(s) in state_dict: ", quoted_list(keys.missing_keys), ". ");
  if (strict && !keys.unexpected_keys.empty())
    problems += cat("\n\tUnexpected key(s) in state_dict: ", quoted_list(keys.unexpected_keys), ". ");
  for (const std::string& mismatch : mismatches) problems += "\n\t" + mismatch;
  if (!problems.empty()) fail(cat("Error(s) in loading state_dict for ", module.name(), ":", problems));
}

IncompatibleKeys Module::load_state_dict(const NamedTensors& state, bool strict) {
  Loading loading;
  load_part(state, "", loading);
  if (loading.post_hooks.empty() || !loading.mismatches.empty()) loading.check(*this, strict);
  {
    NoGradGuard no_grad;
    for (const auto& [to, from] : loading.copies) to.copy_(from);
  }
  for (const auto& [module, hooks] : loading.post_hooks)
    for (const auto& hook : hooks) hook->call(*module, loading.keys);
  if (!loading.post_hooks.empty()) loading.check(*this, strict);
  return loading.keys;
}

void Module::save(const std::string& path) const { mica::save(Value(state_dict()), path); }
IncompatibleKeys Module::load(const std::string& path, bool strict) {
  return load_state_dict(mica::load(path).as_named_tensors(), strict);
}

// ---- clones

// Puts the stream of random numbers back where it was.
struct KeptStream {
  std::vector<uint8_t> state = default_generator().get_state();
  ~KeptStream() { default_generator().set_state(state.data(), state.size()); }
};

Tensor detail::argument_of_clone(const Tensor& tensor) { return tensor.defined() ? tensor.detach() : tensor; }

std::shared_ptr<Module> Module::clone() const {
  MICA_CHECK_KIND(make_again_, NotImplemented, name(), " cannot be cloned, since it was not made through a handle ",
                  "(MICA_MODULE), or from arguments that cannot be copied: override clone()");
  std::shared_ptr<Module> copy;
  {
    KeptStream kept;
    copy = make_again_();
  }
  copy->make_again_ = make_again_;
  copy->copy_state(*this);
  return copy;
}

template <class List>
static bool same_names(const List& a, const List& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    if constexpr (requires { x.first; })
      return x.first == y.first;
    else
      return x.name == y.name && x.tensor.defined() == y.tensor.defined();
  });
}

void Module::copy_own_state(const Module& other) {
  MICA_CHECK_KIND(same_names(parameters_, other.parameters_) && same_names(buffers_, other.buffers_) &&
                      same_names(modules_, other.modules_),
                  NotImplemented, name(),
                  " cannot be cloned, since it got members after it was constructed: ", "override clone()");
  for (const auto kind : {&Module::parameters_, &Module::buffers_})
    for (size_t i = 0; i < (this->*kind).size(); ++i) {
      const Tensor &to = (this->*kind)[i].tensor, &from = (other.*kind)[i].tensor;
      if (!to.defined()) continue;
      (this->*kind)[i].is_lazy = (other.*kind)[i].is_lazy;
      autograd::set_data(to, from.detach().clone());
      to.requires_grad_(from.requires_grad());
    }
  training_ = other.training_;
  if (other.hooks_) hooks_ = other.hooks_->copy_for(this);
  members_replaced();
}
void Module::copy_state(const Module& other) {
  copy_own_state(other);
  for (size_t i = 0; i < modules_.size(); ++i) modules_[i].second->copy_state(*other.modules_[i].second);
}

}  // namespace mica::nn
