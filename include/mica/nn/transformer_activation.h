// The activation between the two linear maps of a Transformer's layer.
#pragma once

#include <functional>
#include <string>

#include "mica/tensor.h"

namespace mica::nn {

// "relu", "gelu", or a function.
class TransformerActivation {
 public:
  TransformerActivation(const char* name) : TransformerActivation(std::string(name)) {}
  TransformerActivation(const std::string& name);
  TransformerActivation(std::function<Tensor(const Tensor&)> function) : function_(std::move(function)) {}
  Tensor operator()(const Tensor& x) const { return function_(x); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

}  // namespace mica::nn
