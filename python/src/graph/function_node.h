// The node of a custom function of Python, and the context of a call: an object of the class that Python derives from
// _FunctionBase for each function, which the node owns. The context is also what x.grad_fn shows.
#pragma once

#include <vector>

#include "graph/node_object.h"
#include "mica/custom_function.h"

namespace mica::python {

struct ContextObject {
  NodeObject base;
  PyObject* to_save;             // tensors given to save_for_backward; cleared when the call has ended
  PyObject* dirty;               // given to mark_dirty
  PyObject* non_differentiable;  // given to mark_non_differentiable
  PyObject* needs_input_grad;    // a tuple of bools, one for each argument
  bool materialize_grads;
  bool materialize_non_diff_grads;  // also for outputs that have no gradient
  bool in_jvp;                      // saved_tensors then are those of save_for_forward
  bool saved_were_read;             // for a class that clears its saved tensors once they were read
};
extern PyTypeObject* function_base;
extern PyObject* name_function;  // "_forward_cls"

inline ContextObject* as_context(PyObject* o) { return reinterpret_cast<ContextObject*>(o); }

class PythonFunctionNode final : public CustomNode {
 public:
  explicit PythonFunctionNode(PyObject* context) : context_(Py_NewRef(context)) {
    name();  // computes its UTF-8 form now, so that it can be read without the interpreter lock
    python_object = context;
    as_context(context)->base.node = this;
  }
  ~PythonFunctionNode() override {
    if (!Py_IsInitialized()) return;
    Locked locked;
    as_context(context_)->base.node = nullptr;
    Py_DECREF(context_);
  }
  const char* name() const override {
    return PyUnicode_AsUTF8(reinterpret_cast<PyHeapTypeObject*>(Py_TYPE(context_))->ht_name);
  }
  void apply(TensorVec& grads, TensorVec& out) override;
  void relate(const TensorVec& outputs, const TensorVec& inputs, const TensorVec& dirty);

  std::vector<bool> is_tensor;       // one for each argument of forward
  std::vector<size_t> without_grad;  // the outputs that have no gradient
  struct Relation {
    size_t output, argument;
    bool in_place;  // the output is the argument itself, changed; otherwise a view of it
  };
  // For a function with a `jvp`: descriptions of its tensors, and
  std::vector<InputMetadata> arguments;
  std::vector<Relation> relations;  // which outputs share memory with which arguments

 private:
  void push(PyObject* function, TensorVec& grads, TensorVec& out);

  PyObject* context_;
};

Owned as_tuple(PyObject* o);  // the values that a function returned, one or several

PyObject* exchange_pushing(PyObject*, PyObject* on);

// Whether a program, and not a module of Mica, makes the running call within a function that torch.func transforms.
bool called_within_transform();

}  // namespace mica::python
