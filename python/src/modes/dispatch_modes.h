// TorchDispatchMode: the stack of modes of a thread, and how an operation reaches the innermost of them.
#pragma once

#include <vector>

#include "mica/autograd.h"
#include "object.h"

namespace mica::python {

// A scope around a backward pass or a step of an optimizer. If it reaches tensors of classes with a
// __torch_dispatch__, the mode that asks them is active in it. Made and destroyed with the interpreter lock held.
class ClassPass {
 public:
  enum class Wanted : bool { No, Yes };
  ClassPass();  // whatever is called
  explicit ClassPass(Wanted wanted);
  explicit ClassPass(const std::vector<Tensor>& roots, const std::vector<Edge>& edges = {});
  ClassPass(const ClassPass&) = delete;
  ClassPass& operator=(const ClassPass&) = delete;
  ~ClassPass();

 private:
  explicit ClassPass(bool entered);
  bool entered_, before_;
};

// Whether the tensor's class has a __torch_dispatch__: what the engine computes with it is computed in a ClassPass.
bool is_of_dispatched_class(const Tensor& t);

bool add_dispatch_modes(PyObject* module);
bool add_torch_dispatch();  // to the class of tensors

}  // namespace mica::python
