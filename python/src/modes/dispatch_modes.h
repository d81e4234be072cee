// TorchDispatchMode: the stack of modes of a thread, and how an operation reaches the innermost of them.
#pragma once

#include <vector>

#include "mica/autograd.h"
#include "object.h"

namespace mica::python {

// A scope around a backward pass. If the pass reaches recorded tensors of classes with a __torch_dispatch__, the mode
// that asks them is active in it. Made and destroyed with the interpreter lock held.
class ClassPass {
 public:
  ClassPass();  // whatever is called
  explicit ClassPass(const std::vector<Tensor>& roots, const std::vector<Edge>& edges = {});
  ClassPass(const ClassPass&) = delete;
  ClassPass& operator=(const ClassPass&) = delete;
  ~ClassPass();

 private:
  explicit ClassPass(bool entered);
  bool entered_, before_;
};

bool add_dispatch_modes(PyObject* module);
bool add_torch_dispatch();  // to the class of tensors

}  // namespace mica::python
