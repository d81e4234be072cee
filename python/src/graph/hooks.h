// Python functions as hooks of tensors and nodes.
#pragma once

#include <memory>

#include "mica/autograd.h"
#include "object.h"

namespace mica::python {

// A hook's function. It is dropped, under the interpreter lock, when the hook is removed; the hook then does nothing.
struct HookCell {
  explicit HookCell(PyObject* function) : callable(Py_NewRef(function)) {}
  HookCell(const HookCell&) = delete;
  HookCell& operator=(const HookCell&) = delete;
  ~HookCell();
  PyObject* callable;
};
using HookFunction = std::shared_ptr<HookCell>;

// Each registers a hook and returns its handle, a new reference.
PyObject* add_gradient_hook(const Tensor& t, PyObject* function);
PyObject* add_post_accumulate_hook(const Tensor& leaf, PyObject* function);
PyObject* add_node_prehook(Node& node, PyObject* function);
PyObject* add_node_posthook(Node& node, PyObject* function);

// For the collector: the functions that only this tensor, which has one owner, keeps alive.
int visit_hooks(const TensorImpl* tensor, visitproc visit, void* arg);
void clear_hooks(const TensorImpl* tensor);

// The same for a node that nothing but its Python object holds.
int visit_node_hooks(const Node& node, visitproc visit, void* arg);
void clear_node_hooks(const Node& node);

// The context that a node of a custom function owns; null for other nodes (autograd_function.cpp).
PyObject* context_of(Node* node);

bool add_hooks(PyObject* module);

}  // namespace mica::python
