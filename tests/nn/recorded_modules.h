// Modules beside what torch recorded for them (tests/recorded/record_cpp_modules.py).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "mica/nn/module.h"

namespace mica::testing {

using Tensors = std::vector<Tensor>;

struct Runnable {
  std::shared_ptr<nn::Module> module;
  std::function<Tensors(const Tensors&)> run;
};

// A module that takes as many tensors as it was recorded with and returns one.
template <size_t kInputs = 1, nn::Holder H>
Runnable runs(const H& module) {
  return {module.shared(), [module](const Tensors& in) -> Tensors {
            if constexpr (kInputs == 1)
              return {module(in[0])};
            else if constexpr (kInputs == 2)
              return {module(in[0], in[1])};
            else if constexpr (kInputs == 3)
              return {module(in[0], in[1], in[2])};
            else
              return {module(in[0], in[1], in[2], in[3])};
          }};
}
// One that is run by `run(module, inputs)`.
template <nn::Holder H, class Run>
Runnable runs(const H& module, const Run& run) {
  return {module.shared(), [module, run](const Tensors& in) -> Tensors { return run(module, in); }};
}

inline void append(Tensors& all, const Tensor& t) {
  if (t.defined()) all.push_back(t);
}
template <class... Ts>
void append(Tensors& all, const std::tuple<Ts...>& parts) {
  std::apply([&](const auto&... part) { (append(all, part), ...); }, parts);
}
// Nested tuples as one list, without what is undefined.
template <class... Parts>
Tensors flat(const Parts&... parts) {
  Tensors all;
  (append(all, parts), ...);
  return all;
}

// Constructs the module from the recorded seed and checks its printing, its state, where that leaves the stream of
// random numbers, its results and gradients, and its clone.
void expect_as_recorded(const std::string& name, const std::function<Runnable()>& make);

}  // namespace mica::testing
