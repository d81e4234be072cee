// The Python object of a node of the backward graph, and what hooks in Python need.
#pragma once

#include <functional>

#include "mica/autograd.h"
#include "object.h"

namespace mica::python {

// A Python object kept by C++ code that may run, or let go of it, on any thread.
using Kept = std::shared_ptr<PyObject>;
Kept keep(PyObject* object);

// Holds the interpreter lock for its scope, on whatever thread.
class Locked {
 public:
  Locked() : state_(PyGILState_Ensure()) {}
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

PyObject* node_object(Node* node);  // a new reference; one object per node; None for null
Node* node_of_object(PyObject* o);  // null if it is no node
PyObject* hook_handle_object(HookHandle handle);

// The callable as a hook on a gradient.
GradHook grad_hook(PyObject* callable);
std::string callable_name(PyObject* callable);

bool add_node(PyObject* module);

}  // namespace mica::python
