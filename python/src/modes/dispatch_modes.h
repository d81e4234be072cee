// TorchDispatchMode: the stack of modes of a thread, and the way of an operation to the innermost of them.
#pragma once

#include "object.h"

namespace mica::python {

// A backward pass: once tensors of classes with a __torch_dispatch__ have been recorded, the mode that asks them is
// active in it. Made and destroyed with the interpreter lock held.
class ClassPass {
 public:
  ClassPass();
  ClassPass(const ClassPass&) = delete;
  ClassPass& operator=(const ClassPass&) = delete;
  ~ClassPass();

 private:
  bool entered_, before_;
};

bool add_dispatch_modes(PyObject* module);

}  // namespace mica::python
