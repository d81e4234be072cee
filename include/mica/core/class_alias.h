// Tensors of Python classes that answer for their operations: how they take part in autograd.
#pragma once

#include "mica/tensor.h"

namespace mica::dispatch {

// Whether what such classes answer is recorded here, and nowhere below: operations without a node of their own are then
// seen as the parts that have one.
extern constinit thread_local bool in_parts __attribute__((tls_model("initial-exec")));

// What the class makes as another tensor of the same elements without history; undefined where the tensor is of no such
// class. Set by the Python extension once such a class takes part in autograd.
extern Tensor (*alias_of_class)(const Tensor&);

inline Tensor class_alias(const Tensor& t) {
  if (!alias_of_class || !t.impl()->python_object) [[likely]]
    return {};
  return alias_of_class(t);
}

}  // namespace mica::dispatch
