// Functions of functions: derivatives of a C++ function as functions, forwards and backwards, and a function over the
// examples of a batch. The functions take tensors, as many as you like, and return a tensor, a TensorVec, or a pair,
// tuple or array of tensors.
//
//   auto energy = [](const Tensor& x) { return (x * x * x).sum(); };
//   Tensor slope = mica::func::grad(energy)(x);               // 3 x^2
//   Tensor curvature = mica::func::hessian(energy)(x);        // diag(6 x)
//   auto [value, pushed] = mica::func::jvp(energy, {x}, {t}); // the value, and the derivative in the direction of t
//
// They nest: what they return can be differentiated again. A derivative forwards is the derivative, by the vector, of
// vector times Jacobian, so that all that can be differentiated twice backwards can be differentiated forwards.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mica/autograd.h"

namespace mica::func {

using ListFunction = std::function<TensorVec(const TensorVec&)>;

// ---- what stands behind the templates ----------------------------------------------------------------------------

// Whether outputs depend on tensors that require grad and are not among the leaves. Derivatives then get a history too,
// so that they can be differentiated by these tensors.
bool reaches_other_leaves(TensorList outputs, TensorList leaves);

// The record of a function that has run on leaves of a graph of its own.
struct Recorded {
  TensorVec leaves;   // the inputs by which it can be differentiated
  TensorVec outputs;  // with their history
  bool nested;        // the outputs depend on more than the leaves, so derivatives get a history
};
// Runs f with new leaves in the place of the arguments that argnums names; negative ones count from the end.
Recorded record(const ListFunction& f, TensorVec args, ArrayRef<int64_t> argnums);
// Multiplies the Jacobian by vectors, one for each output. Returns a gradient for each leaf, zeros where it has none.
TensorVec pull(const Recorded& recorded, const TensorVec& vectors, bool retain_graph, bool create_graph);

// Multiplies tangents by the Jacobian of a recorded function.
class Pusher {
 public:
  explicit Pusher(const Recorded& recorded);
  // Takes a tangent for each leaf and returns a tangent for each output.
  TensorVec operator()(const TensorVec& tangents, bool keep, bool create_graph) const;
  bool reaches() const;  // whether an output depends on a leaf

 private:
  TensorVec outputs_, leaves_, vectors_, pulled_;
  std::vector<size_t> places_;  // the numbers of the outputs that depend on leaves
};

struct GradientAndValue {
  TensorVec gradients;
  Tensor value;
};
GradientAndValue gradient_and_value(const ListFunction& f, TensorVec args, ArrayRef<int64_t> argnums);
// The Jacobians as [output][leaf]; each has the output's sizes followed by the leaf's.
std::vector<TensorVec> jacobian(const ListFunction& f, TensorVec args, ArrayRef<int64_t> argnums, bool forwards);
std::pair<TensorVec, TensorVec> value_and_tangents(const ListFunction& f, TensorVec primals, const TensorVec& tangents);
void check_tangents(const char* name, const TensorVec& primals, const TensorVec& tangents);
TensorVec map_examples(const ListFunction& f, const TensorVec& args, ArrayRef<std::optional<int64_t>> in_dims,
                       int64_t out_dim);
TensorVec detached(const TensorVec& tensors);

inline TensorVec as_list(const Tensor& t) { return {t}; }
inline TensorVec as_list(TensorVec list) { return list; }
template <class Tuple>
requires requires { std::tuple_size<Tuple>::value; }
TensorVec as_list(const Tuple& tensors) {
  return std::apply([](const auto&... each) { return TensorVec{each...}; }, tensors);
}

template <class Result>
Result from_list(const TensorVec& list) {
  if constexpr (std::is_same_v<Result, Tensor>) {
    return list.at(0);
  } else if constexpr (std::is_same_v<Result, TensorVec>) {
    return list;
  } else {
    return [&]<size_t... I>(std::index_sequence<I...>) { return Result{list.at(I)...}; }
    (std::make_index_sequence<std::tuple_size_v<Result>>{});
  }
}

template <size_t>
using TensorArgument = const Tensor&;
template <class F, size_t... I>
auto call_with(const F& f, const TensorVec& args, std::index_sequence<I...>) {
  return f(args[I]...);
}
template <class F, size_t... I>
std::remove_cvref_t<std::invoke_result_t<const F&, TensorArgument<I>...>> result_of(std::index_sequence<I...>);
// What f returns for `count` tensors.
template <class F, size_t count>
using ResultOf = decltype(result_of<F>(std::make_index_sequence<count>{}));

// f of `count` tensors as a function of lists.
template <size_t count, class F>
ListFunction as_list_function(const F& f) {
  return [f](const TensorVec& args) { return as_list(call_with(f, args, std::make_index_sequence<count>{})); };
}

template <class T>
concept TensorLike = std::convertible_to<const T&, Tensor>;

// ---- gradients ---------------------------------------------------------------------------------------------------

// A function that returns the gradient of a scalar function with respect to one argument, and its value.
template <class F>
auto grad_and_value(F f, int64_t argnum = 0) {
  return [f = std::move(f), argnum](const TensorLike auto&... args) {
    const int64_t argnums[] = {argnum};
    auto found = gradient_and_value(as_list_function<sizeof...(args)>(f), {Tensor(args)...}, ArrayRef(argnums, 1));
    return std::pair<Tensor, Tensor>(found.gradients[0], found.value);
  };
}
// With respect to several: the gradients are a list.
template <class F>
auto grad_and_value(F f, std::vector<int64_t> argnums) {
  return [f = std::move(f), argnums = std::move(argnums)](const TensorLike auto&... args) {
    auto found = gradient_and_value(as_list_function<sizeof...(args)>(f), {Tensor(args)...}, argnums);
    return std::pair<TensorVec, Tensor>(found.gradients, found.value);
  };
}
template <class F>
auto grad(F f, int64_t argnum = 0) {
  return [both = grad_and_value(std::move(f), argnum)](const TensorLike auto&... args) { return both(args...).first; };
}
template <class F>
auto grad(F f, std::vector<int64_t> argnums) {
  return [both = grad_and_value(std::move(f), std::move(argnums))](const TensorLike auto&... args) {
    return both(args...).first;
  };
}

// The value of a function, and a function from vectors, one for each output, to their products with the Jacobian: a
// list with a gradient for each primal.
template <class F>
auto vjp(const F& f, const TensorLike auto&... primals) {
  using Result = ResultOf<F, sizeof...(primals)>;
  std::vector<int64_t> all(sizeof...(primals));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  auto recorded =
      std::make_shared<Recorded>(record(as_list_function<sizeof...(primals)>(f), {Tensor(primals)...}, all));
  auto product = [recorded](const TensorLike auto&... vectors) {
    const TensorVec list{Tensor(vectors)...};
    return pull(*recorded, list, true, grad_enabled() && (recorded->nested || any_requires_grad(TensorList(list))));
  };
  const TensorVec values = recorded->nested ? recorded->outputs : detached(recorded->outputs);
  return std::pair<Result, decltype(product)>(from_list<Result>(values), std::move(product));
}

// ---- forwards ----------------------------------------------------------------------------------------------------

// The value of a function of `count` arguments, and the product of its Jacobian with tangents.
template <class F, size_t count>
auto jvp(const F& f, const Tensor (&primals)[count], const Tensor (&tangents)[count]) {
  using Result = ResultOf<F, count>;
  const auto [values, pushed] = value_and_tangents(as_list_function<count>(f), TensorVec(primals, primals + count),
                                                   TensorVec(tangents, tangents + count));
  return std::pair<Result, Result>(from_list<Result>(values), from_list<Result>(pushed));
}

// The value of a function, and a function that multiplies tangents, one for each primal, by its Jacobian there.
template <class F>
auto linearize(const F& f, const TensorLike auto&... primals) {
  using Result = ResultOf<F, sizeof...(primals)>;
  const TensorVec given{Tensor(primals)...};
  std::vector<int64_t> all(sizeof...(primals));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const Recorded recorded = record(as_list_function<sizeof...(primals)>(f), given, all);
  auto pusher = std::make_shared<Pusher>(recorded);
  auto product = [pusher, given](const TensorLike auto&... tangents) {
    const TensorVec list{Tensor(tangents)...};
    check_tangents("linearize", given, list);
    return from_list<Result>((*pusher)(list, true, grad_enabled() && any_requires_grad(TensorList(list))));
  };
  return std::pair<Result, decltype(product)>(from_list<Result>(detached(recorded.outputs)), std::move(product));
}

// ---- Jacobians ---------------------------------------------------------------------------------------------------

template <bool forwards, class F>
auto jacobian_of(F f, int64_t argnum) {
  return [f = std::move(f), argnum](const TensorLike auto&... args) {
    using Result = ResultOf<F, sizeof...(args)>;
    const int64_t argnums[] = {argnum};
    TensorVec blocks;
    for (const TensorVec& row :
         jacobian(as_list_function<sizeof...(args)>(f), {Tensor(args)...}, ArrayRef(argnums, 1), forwards))
      blocks.push_back(row[0]);
    return from_list<Result>(blocks);
  };
}
template <bool forwards, class F>
auto jacobian_of(F f, std::vector<int64_t> argnums) {
  return [f = std::move(f), argnums = std::move(argnums)](const TensorLike auto&... args) {
    return jacobian(as_list_function<sizeof...(args)>(f), {Tensor(args)...}, argnums, forwards);
  };
}

// A function that returns the Jacobian with respect to one argument, shaped as f's result: of an output's sizes
// followed by the argument's. Backwards, row by row: for functions of few results.
template <class F>
auto jacrev(F f, int64_t argnum = 0) {
  return jacobian_of<false>(std::move(f), argnum);
}
// With respect to several: [output][argument].
template <class F>
auto jacrev(F f, std::vector<int64_t> argnums) {
  return jacobian_of<false>(std::move(f), std::move(argnums));
}
// The same forwards, column by column: for functions of few inputs.
template <class F>
auto jacfwd(F f, int64_t argnum = 0) {
  return jacobian_of<true>(std::move(f), argnum);
}
template <class F>
auto jacfwd(F f, std::vector<int64_t> argnums) {
  return jacobian_of<true>(std::move(f), std::move(argnums));
}
// The second derivatives of a function with respect to one argument.
template <class F>
auto hessian(F f, int64_t argnum = 0) {
  return jacfwd(jacrev(std::move(f), argnum), argnum);
}

// ---- examples ----------------------------------------------------------------------------------------------------

// A function of one example as a function of a batch: argument i is cut along in_dims[i], or given whole where that is
// nullopt, and the results are stacked along out_dim. f runs once for each example, one after the other: in C++ this
// saves writing the loop, not its time.
template <class F>
auto vmap(F f, std::vector<std::optional<int64_t>> in_dims, int64_t out_dim = 0) {
  return [f = std::move(f), in_dims = std::move(in_dims), out_dim](const TensorLike auto&... args) {
    using Result = ResultOf<F, sizeof...(args)>;
    return from_list<Result>(map_examples(as_list_function<sizeof...(args)>(f), {Tensor(args)...}, in_dims, out_dim));
  };
}
template <class F>
auto vmap(F f, int64_t in_dim = 0, int64_t out_dim = 0) {
  return [f = std::move(f), in_dim, out_dim](const TensorLike auto&... args) {
    return vmap(f, std::vector<std::optional<int64_t>>(sizeof...(args), in_dim), out_dim)(args...);
  };
}

}  // namespace mica::func

// Tensors that carry a tangent while a level is open:
//
//   mica::forward_ad::DualLevel level;
//   Tensor x = mica::forward_ad::make_dual(primal, tangent);
//   auto [value, derivative] = mica::forward_ad::unpack_dual(f(x));
//
// Operations are recorded within a level, but not within a NoGradGuard inside it. A level that is opened under a
// NoGradGuard gives values and tangents without a history.
namespace mica::forward_ad {

class DualLevel {
 public:
  DualLevel();
  ~DualLevel();
  DualLevel(const DualLevel&) = delete;
  DualLevel& operator=(const DualLevel&) = delete;

 private:
  friend Tensor make_dual(const Tensor& primal, const Tensor& tangent);
  friend struct Unpacked unpack_dual(const Tensor& t);
  bool history_wanted_ = grad_enabled();
  EnableGradGuard recording_;
  TensorVec duals_, tangents_;
};

struct Unpacked {
  Tensor primal;
  Tensor tangent;  // undefined where there is none
};

// The primal with a tangent, for operations within this thread's level. It shares the primal's memory.
Tensor make_dual(const Tensor& primal, const Tensor& tangent);
Unpacked unpack_dual(const Tensor& t);

}  // namespace mica::forward_ad
