#include "graph/function_node.h"

#include <algorithm>

#include "graph/hooks.h"
#include "mica/ops.h"
#include "operations/entry.h"

namespace mica::python {

PyObject* context_of(Node* node) {
  auto* function = dynamic_cast<PythonFunctionNode*>(node);
  return function ? static_cast<PyObject*>(function->python_object) : nullptr;
}

// `backward`, or `vjp`, its other name; looked up at every call, for programs may replace it.
static Owned backward_of(PyObject* function) {
  static PyObject* const name_backward = PyUnicode_InternFromString("backward");
  static PyObject* const name_vjp = PyUnicode_InternFromString("vjp");
  Owned backward(checked(PyObject_GetAttr(function, name_backward)));
  Owned vjp(checked(PyObject_GetAttr(function, name_vjp)));
  PyObject* base = reinterpret_cast<PyObject*>(function_base);
  Owned base_backward(checked(PyObject_GetAttr(base, name_backward)));
  Owned base_vjp(checked(PyObject_GetAttr(base, name_vjp)));
  if (vjp.get() == base_vjp.get()) return backward;
  MICA_CHECK(backward.get() == base_backward.get(),
             "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement "
             "one of them.");
  return vjp;
}

Owned as_tuple(PyObject* o) {
  if (PyTuple_Check(o)) return Owned::borrow(o);
  return Owned(checked(PyTuple_Pack(1, o)));
}

// Whether the present pass is the first of the two that push tangents forwards (mica.func._transforms). A function is
// then asked how it maps tangents: by its `jvp`, if it has one.
static thread_local bool pushing_tangents = false;

PyObject* exchange_pushing(PyObject*, PyObject* on) {
  const int wanted = PyObject_IsTrue(on);
  if (wanted < 0) return nullptr;
  return PyBool_FromLong(std::exchange(pushing_tangents, wanted != 0));
}

namespace {
class NotPushing {  // in the scope of what jvp itself computes
 public:
  NotPushing() : before_(std::exchange(pushing_tangents, false)) {}
  NotPushing(const NotPushing&) = delete;
  NotPushing& operator=(const NotPushing&) = delete;
  ~NotPushing() { pushing_tangents = before_; }

 private:
  bool before_;
};
}  // namespace

// The gradients for `jvp`: zeros that depend on `grads`, such that their derivative by `grads`, in the direction of the
// inputs' tangents, is what `jvp` returns. mica.autograd._pushing makes them.
void PythonFunctionNode::push(PyObject* function, TensorVec& grads, TensorVec& out) {
  const NotPushing inner;
  const auto count = static_cast<Py_ssize_t>(is_tensor.size());
  Owned places(checked(PyTuple_New(count))), blanks(checked(PyTuple_New(count)));
  for (size_t i = 0, at = 0; i < is_tensor.size(); ++i) {
    PyObject *place = nullptr, *blank = nullptr;
    if (is_tensor[i] && at < arguments.size()) {
      const InputMetadata& input = arguments[at];
      const TensorOptions options = TensorOptions(input.dtype).device(input.device);
      if (needs(at)) {
        place = checked(wrap(zeros(input.sizes, options)));
      } else if (is_floating(input.dtype) || is_complex(input.dtype)) {
        blank = checked(wrap(zeros({}, options).expand(input.sizes)));
      }
    }
    at += is_tensor[i];
    PyTuple_SET_ITEM(places.get(), static_cast<Py_ssize_t>(i), place ? place : Py_NewRef(Py_None));
    PyTuple_SET_ITEM(blanks.get(), static_cast<Py_ssize_t>(i), blank ? blank : Py_NewRef(Py_None));
  }
  Owned related(checked(PyList_New(0)));
  for (const Relation& r : relations) {
    Owned item(checked(Py_BuildValue("(nnO)", static_cast<Py_ssize_t>(r.output), static_cast<Py_ssize_t>(r.argument),
                                     r.in_place ? Py_True : Py_False)));
    if (PyList_Append(related.get(), item.get()) < 0) throw PythonError();
  }
  Owned none(checked(PyList_New(0)));
  for (const size_t i : without_grad) {
    Owned number(checked(PyLong_FromSize_t(i)));
    if (PyList_Append(none.get(), number.get()) < 0) throw PythonError();
  }
  Owned module(checked(PyImport_ImportModule("mica.autograd._pushing")));
  Owned transposed(checked(PyObject_GetAttrString(module.get(), "transposed")));
  Owned vectors(checked(to_python(grads)));
  PyObject* call[] = {context_, function, places.get(), blanks.get(), related.get(), none.get(), vectors.get()};
  Owned made(checked(PyObject_Vectorcall(transposed.get(), call, 7, nullptr)));
  for (size_t i = 0, at = 0; i < is_tensor.size(); ++i) {
    if (!is_tensor[i]) continue;
    PyObject* grad = PyTuple_GET_ITEM(made.get(), static_cast<Py_ssize_t>(i));
    if (grad != Py_None) out[at] = unwrap(grad);
    ++at;
  }
}

void PythonFunctionNode::apply(TensorVec& grads, TensorVec& out) {
  if (pushing_tangents) [[unlikely]] {
    Locked locked;
    Owned function(checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(context_)), name_function)));
    Owned has(checked(PyObject_GetAttrString(function.get(), "_has_jvp")));
    if (has.get() == Py_True) {
      materialize(grads);
      return push(function.get(), grads, out);
    }
  }
  materialize(grads);
  if (!as_context(context_)->materialize_non_diff_grads)
    for (const size_t i : without_grad) grads[i] = Tensor();
  Locked locked;
  Owned function(checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(context_)), name_function)));
  Owned backward = backward_of(function.get());
  std::vector<Owned> arguments;
  std::vector<PyObject*> call = {context_};
  for (Tensor& grad : grads) call.push_back(arguments.emplace_back(checked(wrap(grad))).get());
  Owned result(checked(PyObject_Vectorcall(backward.get(), call.data(), call.size(), nullptr)));
  Owned returned = as_tuple(result.get());

  const size_t expected = is_tensor.size();
  auto count = static_cast<size_t>(PyTuple_GET_SIZE(returned.get()));
  const auto item = [&](size_t i) { return PyTuple_GET_ITEM(returned.get(), static_cast<Py_ssize_t>(i)); };
  // More gradients than needed may be returned, if they are None.
  while (count > expected && item(count - 1) == Py_None) --count;
  MICA_CHECK(count == expected, "function ", name(), " returned an incorrect number of gradients (expected ", expected,
             ", got ", PyTuple_GET_SIZE(returned.get()), ")");
  for (size_t i = 0, at = 0; i < expected; ++i) {
    PyObject* grad = item(i);
    if (!is_tensor[i]) {
      MICA_CHECK(grad == Py_None, "function ", name(), " returned a gradient different than None at position ", i + 1,
                 ", but the corresponding forward input was not a Variable");
      continue;
    }
    MICA_CHECK(grad == Py_None || python::is_tensor(grad), "expected Variable or None (got ", Py_TYPE(grad)->tp_name,
               ") at position ", i + 1, " of what ", name(), " returned");
    if (grad != Py_None && needs(at)) out[at] = unwrap(grad);
    ++at;
  }
}

void PythonFunctionNode::relate(const TensorVec& outputs, const TensorVec& inputs, const TensorVec& dirty) {
  for (const Tensor& t : inputs) arguments.push_back({DimVector(t.sizes()), t.dtype(), t.device()});
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    for (size_t argument = 0, at = 0; output.defined() && argument < is_tensor.size(); ++argument) {
      if (!is_tensor[argument]) continue;
      const Tensor& input = inputs[at++];
      const auto same = [&](const Tensor& t) { return t.is_same(output); };
      const bool is_input = input.is_same(output), changed = std::any_of(dirty.begin(), dirty.end(), same);
      const TensorImpl* base = output.impl()->base.get();
      const bool is_view = base && (base == input.impl() || base == input.impl()->base.get());
      if (!(is_input || is_view) || (changed && !is_input)) continue;
      relations.push_back({i, argument, changed});
      break;
    }
  }
}

}  // namespace mica::python
