// The Python object of a node of the backward graph, and helpers for hooks in Python.
#pragma once

#include "mica/autograd.h"
#include "object.h"

namespace mica::python {

// A Python object kept by C++ code that may run, or let go of it, on any thread.
using Kept = std::shared_ptr<PyObject>;
Kept keep(PyObject* object);

// The object of a node keeps it alive. The object of a custom function's node is the function's context, which the node
// keeps alive instead; it has no node before the call is recorded and after the node has gone.
struct NodeObject {
  PyObject_HEAD Ref<Node> owned;
  Node* node;
};
extern PyTypeObject* node_type;

PyObject* node_object(Node* node);  // a new reference; one object per node; None for null
bool is_node(PyObject* o);
Node* node_of_object(PyObject* o);  // for an object that is_node(); throws torch's error if a context has none
void node_dealloc(PyObject* self);

// Whether the node is that of a sum or a product with a number. torch makes the number a tensor, so programs expect one
// more edge, which leads nowhere, and one more gradient, which is None.
bool has_number(const Node& node);

bool add_node(PyObject* module);
bool add_function(PyObject* module);        // autograd_function.cpp
bool add_autograd_modes(PyObject* module);  // autograd_modes.cpp
bool add_saved_tensor(PyObject* module);    // saved_tensor_object.cpp

// The object of a tensor that a node has saved; it keeps the node alive.
PyObject* saved_tensor_object(Node& node, SavedTensor* saved);
std::shared_ptr<SavedTensorHooks> saved_tensor_hooks(PyObject* pack, PyObject* unpack);

}  // namespace mica::python
