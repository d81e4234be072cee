// Modules: parameters, buffers and other modules by name, and what is done with all of them at once.
//
//   struct Net : nn::Module {
//     nn::Linear hidden = register_module("hidden", nn::Linear(784, 128));
//     nn::Linear out = register_module("out", nn::Linear(128, 10, {.bias = false}));
//     Tensor forward(const Tensor& x) { return out(relu(hidden(x))); }
//   };
//
// Names, shapes and initial values are those of the Python package, so that checkpoints move between the languages and
// one seed gives one network.
#pragma once

#include <concepts>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mica/nn/dims.h"
#include "mica/nn/hooks.h"
#include "mica/tensor.h"

namespace mica::nn {

// A handle to a module that is shared, such as nn::Linear.
template <class H>
concept Holder = requires(const H& holder) {
  holder.shared();
};

// For constructors of modules that take their size from the first input.
struct Lazy {};

class Module {
 public:
  using Named = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;

  Module() = default;
  explicit Module(std::string name) : name_(std::move(name)) {}
  Module(const Module&) = delete;  // a copy would share its parameters; see clone()
  Module& operator=(const Module&) = delete;
  virtual ~Module();

  // ---- members. A name must be new and may not contain a dot; an undefined
  // tensor keeps its place but is not listed.
  Tensor register_parameter(std::string name, const Tensor& tensor, bool requires_grad = true);
  Tensor register_buffer(std::string name, const Tensor& tensor, bool persistent = true);
  // Members whose shape is known later, by the first input or the state that is loaded (mica/nn/lazy.h). Until then
  // they are empty; the tensor stays the same, so that optimizers and other modules may have it already.
  Tensor register_uninitialized_parameter(std::string name);
  Tensor register_uninitialized_buffer(std::string name);
  bool has_uninitialized_params() const;  // of this module, not of those below
  template <std::derived_from<Module> M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    add_module(std::move(name), module);
    return module;
  }
  template <Holder H>
  H register_module(std::string name, H holder) {
    add_module(std::move(name), std::shared_ptr<Module>(holder));
    return holder;
  }

  // ---- all of them, each once, in the order in which they were registered
  std::vector<Tensor> parameters(bool recurse = true) const;
  NamedTensors named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  NamedTensors named_buffers(bool recurse = true) const;
  std::vector<std::shared_ptr<Module>> children() const;
  const Named& named_children() const { return modules_; }
  Named named_modules() const;     // all modules below by their paths, without this one
  std::vector<Module*> modules();  // this one, then those below
  // Finds by path: "layer1.0.weight". Throws if there is none. The empty path is the module itself.
  Module& get_submodule(const std::string& path);
  Tensor get_parameter(const std::string& path);
  Tensor get_buffer(const std::string& path);
  // The module in its own type, or null: m.as<nn::Linear>()->weight.
  template <class M>
  auto as() {
    if constexpr (Holder<M>)
      return dynamic_cast<typename M::Impl*>(this);
    else
      return dynamic_cast<M*>(this);
  }
  // ---- state
  NamedTensors state_dict() const;
  // Copies values into parameters and buffers. Everything is checked first: names that are missing or not expected
  // (unless !strict) and shapes that differ are reported together, and then nothing is changed.
  IncompatibleKeys load_state_dict(const NamedTensors& state, bool strict = true);
  void save(const std::string& path) const;
  IncompatibleKeys load(const std::string& path, bool strict = true);

  // A module like this one with values of its own, for modules made through a handle (nn::clone keeps the handle's
  // type). It is constructed from the same arguments, and the random stream stays where it is.
  virtual std::shared_ptr<Module> clone() const;

  // ---- hooks (mica/nn/hooks.h)
  HookHandle register_forward_pre_hook(ForwardPreHook hook, HookPlace place = {});
  HookHandle register_forward_hook(ForwardHook hook, ForwardHookPlace place = {});
  HookHandle register_full_backward_pre_hook(BackwardPreHook hook, HookPlace place = {});
  HookHandle register_full_backward_hook(BackwardHook hook, HookPlace place = {});
  HookHandle register_state_dict_pre_hook(StateDictPreHook hook);  // before the module's part is written
  // After its part and those of all modules below are written.
  HookHandle register_state_dict_post_hook(StateDictHook hook);
  // A pre-hook runs before a module's part is loaded and may change it; it does not see the parts of other modules.
  // With a post-hook, missing and unexpected names are reported after it ran, since it may forgive them; values are in
  // place by then.
  HookHandle register_load_state_dict_pre_hook(LoadStateDictPreHook hook);
  HookHandle register_load_state_dict_post_hook(LoadStateDictPostHook hook);
  bool is_hooked() const { return hooks_ || detail::all_modules_are_hooked.load(std::memory_order_relaxed); }

  // ---- everything at once
  virtual void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  void zero_grad(bool set_to_none = true);
  void requires_grad_(bool on = true);
  void to(Device device);
  void to(DType dtype);  // converts floating-point and complex parameters and buffers
  void to(Device device, DType dtype);
  void apply(const std::function<void(Module&)>& function);

  // ---- printing, as Python does
  virtual std::string name() const;
  virtual std::string extra_repr() const { return {}; }
  virtual std::string repr() const;
  friend std::ostream& operator<<(std::ostream& out, const Module& module);

 protected:
  // Copies the values of a module with the same members, whether they require gradients, and whether it trains. Modules
  // below are left out.
  void copy_own_state(const Module& other);
  // Gives a member its shape and memory without values. Does nothing for a member that has a shape.
  void materialize(const Tensor& member, IntArrayRef sizes);
  // For modules that keep more than their members: called before a state is loaded, and when members may have got
  // shapes.
  virtual void prepare_load(NamedTensors& /*state*/, const std::string& /*prefix*/) {}
  virtual void members_replaced() {}

 private:
  template <class M>
  friend class ModuleHolder;
  friend struct detail::ModuleHooks;
  struct Loading;
  struct Entry {
    std::string name;
    Tensor tensor;
    bool persistent = true;
    bool is_lazy = false;  // has no shape yet
  };
  void add_module(std::string name, std::shared_ptr<Module> module);
  void check_name(const std::string& name) const;
  void copy_state(const Module& other);
  void save_part(NamedTensors& state, const std::string& prefix) const;
  void load_part(NamedTensors part, const std::string& prefix, Loading& loading);
  template <class F>
  void visit(const F& function) const;  // (path, module), this one first, each once
  Tensor get_tensor(const std::string& path, std::vector<Entry> Module::*kind, const char* what);
  NamedTensors named_tensors(std::vector<Entry> Module::*kind, bool recurse) const;
  template <class F>
  void convert(const F& function);

  std::string name_;
  std::vector<Entry> parameters_, buffers_;
  Named modules_;
  bool training_ = true;
  std::function<std::shared_ptr<Module>()> make_again_;
  std::shared_ptr<detail::ModuleHooks> hooks_;  // null until a hook is registered
};

// Runs forward and the module's hooks, as a handle does, for modules without one.
template <std::derived_from<Module> M, class... Args>
auto call(M& module, Args&&... args) {
  if (!module.Module::is_hooked()) [[likely]]
    return module.forward(std::forward<Args>(args)...);
  return detail::call_hooked(module, std::forward<Args>(args)...);
}

// A handle of the same type to a clone.
template <Holder H>
H clone(const H& module) {
  return module ? H(std::static_pointer_cast<typename H::Impl>(module->clone())) : H(nullptr);
}

namespace detail {

struct NoOptions {};
template <class M>
struct options_of {
  using type = NoOptions;
};
template <class M>
requires requires { typename M::Options; }
struct options_of<M> {
  using type = typename M::Options;
};

// Turns an argument of a module's constructor into the argument for its clone: modules are cloned, tensors get another
// handle (their values are copied later), everything else is copied.
Tensor argument_of_clone(const Tensor& tensor);
template <class T>
T argument_of_clone(const T& argument) {
  if constexpr (Holder<T>)
    return nn::clone(argument);
  else
    return argument;
}
template <Holder H>
std::vector<H> argument_of_clone(const std::vector<H>& modules) {
  std::vector<H> clones;
  for (const H& module : modules) clones.push_back(nn::clone(module));
  return clones;
}

}  // namespace detail

// A module that is shared, not copied: nn::Linear is a ModuleHolder<LinearImpl>. Called like a function, it runs
// forward and the module's hooks.
template <class M>
class ModuleHolder {
 public:
  using Impl = M;
  using Options = typename detail::options_of<M>::type;

  ModuleHolder(std::nullptr_t) {}
  explicit ModuleHolder(std::shared_ptr<M> module) : module_(std::move(module)) {}
  template <class... Args>
  requires(std::constructible_from<M, Args...> &&
           // One argument that is a handle is copied, not wrapped.
           !(sizeof...(Args) == 1 &&
             (std::derived_from<std::remove_cvref_t<Args>, ModuleHolder> && ...))) explicit ModuleHolder(Args&&... args)
      : module_(make(std::forward<Args>(args)...)) {}

  // So that sizes and options can be written in braces: nn::Conv2d(3, 16, {3, 5}, {.padding = 1}).
  explicit ModuleHolder(Options options) requires std::constructible_from<M, Options> : module_(make(options)) {}
  explicit ModuleHolder(Dims a) requires std::constructible_from<M, Dims> : module_(make(a)) {}
  ModuleHolder(Dims a, Options options) requires std::constructible_from<M, Dims, Options> : module_(make(a, options)) {
  }
  ModuleHolder(int64_t a, Options options) requires std::constructible_from<M, int64_t, Options>
      : module_(make(a, options)) {}
  ModuleHolder(int64_t a, int64_t b, Options options) requires std::constructible_from<M, int64_t, int64_t, Options>
      : module_(make(a, b, options)) {}
  ModuleHolder(int64_t a, int64_t b, int64_t c,
               Options options) requires std::constructible_from<M, int64_t, int64_t, int64_t, Options>
      : module_(make(a, b, c, options)) {}
  ModuleHolder(int64_t a, int64_t b, Dims c,
               Options options = {}) requires std::constructible_from<M, int64_t, int64_t, Dims, Options>
      : module_(make(a, b, c, options)) {}

  // Makes the module from an object that constructs modules, as the options in torch_headers do.
  template <class Recipe>
  requires requires(const Recipe& recipe) { recipe.template construct<ModuleHolder>(); }
  explicit ModuleHolder(const Recipe& recipe) : ModuleHolder(recipe.template construct<ModuleHolder>()) {}

  M* operator->() const { return static_cast<M*>(module_.get()); }
  M& operator*() const { return static_cast<M&>(*module_); }
  std::shared_ptr<M> shared() const { return std::static_pointer_cast<M>(module_); }
  explicit operator bool() const { return module_ != nullptr; }
  operator std::shared_ptr<Module>() const { return module_; }

  template <class... Args>
  auto operator()(Args&&... args) const {
    return nn::call(**this, std::forward<Args>(args)...);
  }

 private:
  template <class... Args>
  static std::shared_ptr<M> make(Args&&... args) {
    std::function<std::shared_ptr<Module>()> again;
    if constexpr (std::constructible_from<M, std::decay_t<Args>...> &&
                  (std::copy_constructible<std::decay_t<Args>> && ...))
      again = [args...] { return std::make_shared<M>(detail::argument_of_clone(std::decay_t<Args>(args))...); };
    auto module = std::make_shared<M>(std::forward<Args>(args)...);
    module->Module::make_again_ = std::move(again);
    return module;
  }

  // Points to an M; a pointer type of its own for each M would make programs slower to compile.
  std::shared_ptr<Module> module_;
};

template <class M>
std::ostream& operator<<(std::ostream& out, const ModuleHolder<M>& holder) {
  return out << static_cast<const Module&>(*holder);
}

// Makes Name a handle to a NameImpl, in any namespace.
#define MICA_MODULE(Name)                                     \
  class Name : public ::mica::nn::ModuleHolder<Name##Impl> {  \
   public:                                                    \
    using ::mica::nn::ModuleHolder<Name##Impl>::ModuleHolder; \
  }

}  // namespace mica::nn
