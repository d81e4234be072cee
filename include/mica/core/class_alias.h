// How tensors of Python classes that answer for their own operations (__torch_dispatch__) take part in autograd.
#pragma once

#include "mica/tensor.h"

namespace mica::dispatch {

// True while the engine records the operations that such a class answers for, and the class itself records nothing. An
// operation without a node of its own is then handed to the class as the parts that have nodes.
extern constinit thread_local bool in_parts __attribute__((tls_model("initial-exec")));

// Asks the class of a tensor for another tensor of the same elements without history. The result is undefined where the
// tensor is of no such class. The Python extension sets this once such a class takes part in autograd.
extern Tensor (*alias_of_class)(const Tensor&);

inline Tensor class_alias(const Tensor& t) {
  if (!alias_of_class || !t.impl()->python_object) [[likely]]
    return {};
  return alias_of_class(t);
}

}  // namespace mica::dispatch
