// Functions that run around the calls of modules:
//
//   HookHandle hook = net->register_forward_hook([](nn::Module& m, const TensorVec&, TensorVec& out) {
//     std::cout << m.name() << " " << out[0].sizes() << "\n";
//   });
//   hook.remove();
//
// They run where a module is called through its handle, by a container, or by nn::call(module, x); forward by itself
// runs none. They see the tensors among the arguments and in the result: tensors by themselves and those in vectors,
// arrays, pairs, tuples and optionals, one after the other. One that was not given stands there undefined.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mica/serialize.h"

namespace mica {
using TensorVec = std::vector<Tensor>;
class HookHandle;  // register functions return it; its remove() takes the hook off (mica/autograd.h)
}  // namespace mica

namespace mica::nn {

class Module;

// A hook may assign to `inputs`, `outputs` and the gradients, which replaces them. Their number must stay the same.
using ForwardPreHook = std::function<void(Module& module, TensorVec& inputs)>;
using ForwardHook = std::function<void(Module& module, const TensorVec& inputs, TensorVec& outputs)>;
// A BackwardPreHook gets the gradients of the outputs before those of the module are computed. A BackwardHook runs when
// the gradients of the inputs are computed. If the module is gone by then, no hook runs.
using BackwardPreHook = std::function<void(Module& module, TensorVec& grad_outputs)>;
using BackwardHook = std::function<void(Module& module, TensorVec& grad_inputs, const TensorVec& grad_outputs)>;

struct IncompatibleKeys {
  std::vector<std::string> missing_keys, unexpected_keys;
};
// `prefix` is where the module stands in the state, with a dot at its end.
using StateDictPreHook = std::function<void(Module& module, const std::string& prefix)>;
using StateDictHook = std::function<void(Module& module, NamedTensors& state, const std::string& prefix)>;
using LoadStateDictPreHook = std::function<void(Module& module, NamedTensors& state, const std::string& prefix)>;
using LoadStateDictPostHook = std::function<void(Module& module, IncompatibleKeys& keys)>;

struct HookPlace {
  bool prepend = false;  // run it before the hooks that are there
};
struct ForwardHookPlace {
  bool prepend = false;
  bool always_call = false;  // run it even if forward throws; it gets no outputs then
};

// Hooks of all modules, which run before a module's own.
HookHandle register_module_forward_pre_hook(ForwardPreHook hook);
HookHandle register_module_forward_hook(ForwardHook hook, bool always_call = false);
HookHandle register_module_full_backward_pre_hook(BackwardPreHook hook);
HookHandle register_module_full_backward_hook(BackwardHook hook);

namespace detail {

struct ModuleHooks;
extern std::atomic<bool> all_modules_are_hooked;

using Forward = std::function<TensorVec(const TensorVec& inputs)>;
TensorVec call_with_hooks(Module& module, TensorVec inputs, const Forward& forward);
using Step = Tensor (*)(Module& module, const Tensor& x);
Tensor call_with_hooks(Module& module, const Tensor& x, Step step);

// ---- the tensors in a value

template <class T>
constexpr bool holds_tensors = std::is_base_of_v<Tensor, T> || requires(T& value) {
  value.visit_tensors([](Tensor&) {});
};
template <class T, class A>
constexpr bool holds_tensors<std::vector<T, A>> = holds_tensors<T>;
template <class T, size_t n>
constexpr bool holds_tensors<std::array<T, n>> = holds_tensors<T>;
template <class T>
constexpr bool holds_tensors<std::optional<T>> = holds_tensors<T>;
template <class A, class B>
constexpr bool holds_tensors<std::pair<A, B>> = holds_tensors<A> || holds_tensors<B>;
template <class... Ts>
constexpr bool holds_tensors<std::tuple<Ts...>> = (holds_tensors<Ts> || ...);

template <class T, class F>
void visit_tensors(T& value, const F& visit) {
  if constexpr (!holds_tensors<T>)
    return;
  else if constexpr (std::is_base_of_v<Tensor, T>)
    visit(value);
  else if constexpr (requires { value.visit_tensors(visit); })
    value.visit_tensors(visit);
  else if constexpr (requires { value.begin(); })
    for (auto& item : value) visit_tensors(item, visit);
  else if constexpr (requires { value.has_value(); }) {
    if (value) visit_tensors(*value, visit);
  } else
    std::apply([&](auto&... items) { (visit_tensors(items, visit), ...); }, value);
}

template <class... Values>
TensorVec tensors_in(Values&... values) {
  TensorVec found;
  (visit_tensors(values, [&](Tensor& t) { found.push_back(t); }), ...);
  return found;
}
template <class... Values>
void replace_tensors(const TensorVec& tensors, Values&... values) {
  size_t next = 0;
  (visit_tensors(values, [&](Tensor& t) { t = tensors[next++]; }), ...);
}

// Arguments that hold tensors are copied, so that hooks can replace these; others are passed on.
template <class T>
using Passed = std::conditional_t<holds_tensors<std::remove_cvref_t<T>>, std::remove_cvref_t<T>, T&&>;

template <class M, class... Args>
auto call_hooked(M& module, Args&&... args) {
  using Result = decltype(module.forward(std::forward<Args>(args)...));
  if constexpr (sizeof...(Args) == 1 && (std::is_same_v<std::remove_cvref_t<Args>, Tensor> && ...) &&
                std::is_same_v<Result, Tensor>) {
    return call_with_hooks(module, args...,
                           [](Module& m, const Tensor& x) -> Tensor { return static_cast<M&>(m).forward(x); });
  } else {
    std::tuple<Passed<Args>...> passed(std::forward<Args>(args)...);
    const auto forward = [&]() -> decltype(auto) {
      return std::apply([&](auto&... each) -> decltype(auto) { return module.forward(std::forward<Args>(each)...); },
                        passed);
    };
    const TensorVec inputs = std::apply([](auto&... each) { return tensors_in(each...); }, passed);
    const auto take = [&](const TensorVec& changed) {
      std::apply([&](auto&... each) { replace_tensors(changed, each...); }, passed);
    };
    if constexpr (std::is_void_v<Result>) {
      call_with_hooks(module, inputs, [&](const TensorVec& changed) {
        take(changed);
        forward();
        return TensorVec();
      });
    } else {
      std::optional<std::remove_cvref_t<Result>> result;
      const TensorVec outputs = call_with_hooks(module, inputs, [&](const TensorVec& changed) {
        take(changed);
        result.emplace(forward());
        return tensors_in(*result);
      });
      replace_tensors(outputs, *result);
      return std::move(*result);
    }
  }
}

}  // namespace detail

}  // namespace mica::nn
