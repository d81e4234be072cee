#include "graph/node_object.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "autograd/metadata.h"
#include "autograd/raw_saved.h"
#include "autograd/saved_fields.h"
#include "graph/hooks.h"
#include "operations/entry.h"

namespace mica::python {

PyTypeObject* node_type;
static PyObject* types_by_name;  // "AddBackward0" -> its type

static NodeObject* as_node(PyObject* o) { return reinterpret_cast<NodeObject*>(o); }

Kept keep(PyObject* object) {
  return Kept(Py_NewRef(object), [](PyObject* o) {
    if (!Py_IsInitialized()) return;
    Locked locked;
    Py_DECREF(o);
  });
}

// A hook that refers to the object of its own node makes a cycle through C++. The collector sees it once nothing but
// that object holds the node.
static int node_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Node* node = as_node(self)->node;
  return node && node->use_count() == 1 ? visit_node_hooks(*node, visit, arg) : 0;
}
static int node_clear(PyObject* self) {
  Node* node = as_node(self)->node;
  if (node && node->use_count() == 1) clear_node_hooks(*node);
  return 0;
}

// Every kind of node is a class of its own, so that type(x.grad_fn).__name__ says which it is.
static PyTypeObject* type_of_kind(const char* name) {
  if (PyObject* known = PyDict_GetItemString(types_by_name, name)) return reinterpret_cast<PyTypeObject*>(known);
  PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(node_traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(node_clear)},
                         {0, nullptr}};
  std::string full_name = cat("torch.autograd.graph.", name);
  PyType_Spec spec = {full_name.c_str(), sizeof(NodeObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC, slots};
  Owned made(PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(node_type)));
  // torch's have no module: repr() is <class 'MulBackward0'>.
  const Owned module(PyUnicode_FromString("builtins"));
  if (!made || !module || PyObject_SetAttrString(made.get(), "__module__", module.get()) < 0) return nullptr;
  if (PyDict_SetItemString(types_by_name, name, made.get()) < 0) return nullptr;
  auto* type = reinterpret_cast<PyTypeObject*>(made.get());
  type->tp_name += full_name.size() - std::strlen(name);
  return type;
}

PyObject* node_object(Node* node) {
  if (!node) Py_RETURN_NONE;
  if (node->python_object) return Py_NewRef(static_cast<PyObject*>(node->python_object));
  PyTypeObject* type = type_of_kind(node->name());
  PyObject* o = type ? type->tp_alloc(type, 0) : nullptr;
  if (!o) return nullptr;
  new (&as_node(o)->owned) Ref<Node>(node);
  as_node(o)->node = node;
  node->python_object = o;
  return o;
}

bool is_node(PyObject* o) { return PyObject_TypeCheck(o, node_type); }

Node* node_of_object(PyObject* o) {
  MICA_CHECK(as_node(o)->node, Py_TYPE(o)->tp_name,
             " is not, or no longer, part of a graph: nothing that requires grad went in, or its outputs are gone");
  return as_node(o)->node;
}

void node_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  if (PyType_IS_GC(type)) PyObject_GC_UnTrack(self);
  if (Node* node = as_node(self)->node) node->python_object = nullptr;
  as_node(self)->owned.~Ref<Node>();
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject* node_repr(PyObject* self) {
  const char* full_name = Py_TYPE(self)->tp_name;
  const char* last_dot = std::strrchr(full_name, '.');
  return PyUnicode_FromFormat("<%s object at %p>", last_dot ? last_dot + 1 : full_name, self);
}
static PyObject* node_name(PyObject* self, PyObject*) try {
  Node* node = node_of_object(self);
  // torch names nodes that its table does not generate after their C++ class.
  return node->is_accumulator ? PyUnicode_FromString("torch::autograd::AccumulateGrad")
                              : PyUnicode_FromString(node->name());
} catch (...) {
  return raise_current_exception();
}
static PyObject* node_sequence(PyObject* self, PyObject*) try {
  return PyLong_FromUnsignedLongLong(node_of_object(self)->sequence);
} catch (...) {
  return raise_current_exception();
}

bool has_number(const Node& node) {
  static constexpr std::string_view kNames[] = {"AddBackward0", "SubBackward0", "MulBackward0", "DivBackward0",
                                                "WhereBackward0"};
  return node.next_edges.size() == 1 &&
         std::find(std::begin(kNames), std::end(kNames), node.name()) != std::end(kNames);
}

static PyObject* get_next_functions(PyObject* self, void*) try {
  const Node& node = *node_of_object(self);
  auto& edges = node.next_edges;
  const Py_ssize_t numbers = has_number(node) ? 1 : 0;
  Owned tuple(PyTuple_New(static_cast<Py_ssize_t>(edges.size()) + numbers));
  if (tuple && numbers) {
    PyObject* nowhere = Py_BuildValue("(Oi)", Py_None, 0);
    if (!nowhere) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(edges.size()), nowhere);
  }
  for (size_t i = 0; tuple && i < edges.size(); ++i) {
    Owned next(node_object(edges[i].function.get()));
    PyObject* pair = next ? Py_BuildValue("(OI)", next.get(), edges[i].input_nr) : nullptr;
    if (!pair) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), pair);
  }
  return tuple.release();
} catch (...) {
  return raise_current_exception();
}

static PyObject* set_sequence(PyObject* self, PyObject* number) try {
  const unsigned long long given = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  node_of_object(self)->sequence = given;
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* tuple_of(const DimVector& sizes) {
  Owned tuple(PyTuple_New(static_cast<Py_ssize_t>(sizes.size())));
  for (size_t i = 0; tuple && i < sizes.size(); ++i) {
    PyObject* item = PyLong_FromLongLong(sizes[i]);
    if (!item) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), item);
  }
  return tuple.release();
}

template <class T, class F>
static PyObject* tuple_of(const std::vector<T>& list, const F& convert) {
  Owned tuple(PyTuple_New(static_cast<Py_ssize_t>(list.size())));
  for (size_t i = 0; tuple && i < list.size(); ++i) {
    PyObject* item = convert(list[i]);
    if (!item) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), item);
  }
  return tuple.release();
}

// A dict that programs may use, made on demand. It lives as long as the node, because a hook that does nothing holds
// it.
struct MetadataHolder {
  Kept dict;
  void operator()(TensorVec&) const {}
};

static PyObject* get_metadata(PyObject* self, void*) try {
  Node& node = *node_of_object(self);
  if (node.hooks)
    for (const auto& hook : node.hooks->pre_hooks)
      if (const auto* holder = hook->call.target<MetadataHolder>()) return Py_NewRef(holder->dict.get());
  Owned dict(checked(PyDict_New()));
  autograd::register_prehook(node, MetadataHolder{keep(dict.get())});
  return dict.release();
} catch (...) {
  return raise_current_exception();
}

// A description of each gradient that comes in.
static PyObject* get_input_metadata(PyObject* self, void*) try {
  const Node& node = *node_of_object(self);
  Owned graph(checked(PyImport_ImportModule("mica.autograd.graph")));
  Owned make(checked(PyObject_GetAttrString(graph.get(), "_InputMetadata")));
  Owned tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(node.inputs.size()))));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const InputMetadata& input = node.inputs[i];
    const bool any = input.dtype != DType::Undefined;
    Owned dtype(any && input.dtype != kAnyDType ? checked(to_python(input.dtype)) : Py_NewRef(Py_None));
    Owned device(any ? checked(device_object(input.device)) : Py_NewRef(Py_None));
    Owned sizes(checked(tuple_of(input.sizes)));
    PyObject* call[] = {dtype.get(), device.get(), sizes.get()};
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i),
                     checked(PyObject_Vectorcall(make.get(), call, 3, nullptr)));
  }
  return tuple.release();
} catch (...) {
  return raise_current_exception();
}

// node(*gradients): the results of its backward for these gradients, without the engine.
static PyObject* node_call(PyObject* self, PyObject* args, PyObject* kwargs) try {
  Node& node = *node_of_object(self);
  const auto count = static_cast<size_t>(PyTuple_GET_SIZE(args));
  if (kwargs && PyDict_GET_SIZE(kwargs) > 0)
    return PyErr_Format(PyExc_TypeError, "keyword arguments are not supported");
  if (count != node.inputs.size())
    return PyErr_Format(PyExc_TypeError, "expected %zu arguments, got %zu instead", node.inputs.size(), count);
  TensorVec came;
  for (size_t i = 0; i < count; ++i) {
    PyObject* given = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(i));
    if (given != Py_None && !is_tensor(given))
      return PyErr_Format(PyExc_TypeError, "argument %zu is not a Variable", i);
    came.push_back(given == Py_None ? Tensor() : unwrap(given));
  }
  const Ref<Node> held(&node);
  TensorVec made(node.next_edges.size());
  node.apply(came, made);
  if (made.size() == 1) return to_python(made[0]);
  return tuple_of(std::vector<Tensor>(made.begin(), made.end()), [](const Tensor& t) { return to_python(t); });
} catch (...) {
  return raise_current_exception();
}

static PyObject* get_variable(PyObject* self, void*) {
  Node* node = as_node(self)->node;
  if (node && node->is_accumulator) return wrap(static_cast<AccumulateGrad*>(node)->variable);
  return PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute 'variable'", Py_TYPE(self)->tp_name);
}

// ---- what a node has saved

struct SavedToPython {
  PyObject* operator()(std::monostate) const { Py_RETURN_NONE; }
  PyObject* operator()(const TensorVec& list) const {
    return tuple_of(std::vector<Tensor>(list.begin(), list.end()), [](const Tensor& t) { return to_python(t); });
  }
  PyObject* operator()(const DimVector& sizes) const { return tuple_of(sizes); }
  PyObject* operator()(const std::vector<double>& list) const { return tuple_of(list, PyFloat_FromDouble); }
  PyObject* operator()(const std::vector<DimVector>& list) const {
    return tuple_of(list, [](const DimVector& sizes) { return tuple_of(sizes); });
  }
  template <class T>
  PyObject* operator()(const T& value) const {
    return to_python(value);
  }
};

static constexpr std::string_view kSavedPrefix = "_saved_", kRawPrefix = "_raw_saved_";

// The saved tensors themselves, of a field that has some; null without an error where there is none.
static PyObject* raw_saved(Node& node, std::string_view field) {
  const std::optional<RawSaved> found = raw_saved_field(node, field);
  if (!found) return nullptr;
  if (!found->is_list) return checked(saved_tensor_object(node, found->tensors[0]));
  return checked(tuple_of(found->tensors, [&](SavedTensor* t) { return saved_tensor_object(node, t); }));
}

static PyObject* node_getattr(PyObject* self, PyObject* name) try {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError) || !as_node(self)->node) return found;
  const char* text = PyUnicode_AsUTF8(name);
  const bool raw = text && std::string_view(text).starts_with(kRawPrefix);
  if (!text || !(raw || std::string_view(text).starts_with(kSavedPrefix))) return nullptr;
  PyObject *t, *v, *b;
  PyErr_Fetch(&t, &v, &b);
  Node& node = *as_node(self)->node;
  if (raw) {
    if (PyObject* answer = raw_saved(node, std::string_view(text).substr(kRawPrefix.size()))) {
      Py_XDECREF(t), Py_XDECREF(v), Py_XDECREF(b);
      return answer;
    }
    PyErr_Restore(t, v, b);
    return nullptr;
  }
  SavedFieldSearch search(node, std::string_view(text).substr(kSavedPrefix.size()));
  try {
    show_saved_fields(node, search);
  } catch (...) {
    Py_XDECREF(t), Py_XDECREF(v), Py_XDECREF(b);
    throw;
  }
  if (!search.found) {
    PyErr_Restore(t, v, b);
    return nullptr;
  }
  Py_XDECREF(t), Py_XDECREF(v), Py_XDECREF(b);
  return std::visit(SavedToPython(), *search.found);
} catch (...) {
  return raise_current_exception();
}

static PyObject* node_dir(PyObject* self, PyObject*) try {
  Owned known(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__dir__", "O", self));
  if (!known || !as_node(self)->node) return known.release();
  SavedFieldSearch search(*as_node(self)->node);
  show_saved_fields(*as_node(self)->node, search);
  for (const char* name : search.names) {
    Owned text(PyUnicode_FromFormat("_saved_%s", name));
    if (!text || PyList_Append(known.get(), text.get()) < 0) return nullptr;
  }
  return known.release();
} catch (...) {
  return raise_current_exception();
}

static PyObject* node_register_hook(PyObject* self, PyObject* callable) try {
  return add_node_posthook(*node_of_object(self), callable);
} catch (...) {
  return raise_current_exception();
}

static PyObject* node_register_prehook(PyObject* self, PyObject* callable) try {
  return add_node_prehook(*node_of_object(self), callable);
} catch (...) {
  return raise_current_exception();
}

bool add_node(PyObject* module) {
  static PyMethodDef methods[] = {
      {"name", node_name, METH_NOARGS, "The node's name, such as AddBackward0."},
      {"register_hook", node_register_hook, METH_O,
       "Calls hook(grad_inputs, grad_outputs) after the node has run; it may return new grad_inputs."},
      {"register_prehook", node_register_prehook, METH_O,
       "Calls hook(grad_outputs) before the node runs; it may return new ones."},
      {"_sequence_nr", node_sequence, METH_NOARGS, nullptr},
      {"_set_sequence_nr", set_sequence, METH_O, "Later numbers run first, of the nodes that may run."},
      {"__dir__", node_dir, METH_NOARGS, nullptr},
      {}};
  static PyGetSetDef attributes[] = {{"next_functions", get_next_functions, nullptr,
                                      "The nodes that gradients flow on to, with their input numbers.", nullptr},
                                     {"metadata", get_metadata, nullptr, nullptr, nullptr},
                                     {"_input_metadata", get_input_metadata, nullptr, nullptr, nullptr},
                                     {"variable", get_variable, nullptr, "The leaf that is added to.", nullptr},
                                     {}};
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(node_dealloc)},
                                {Py_tp_repr, reinterpret_cast<void*>(node_repr)},
                                {Py_tp_getattro, reinterpret_cast<void*>(node_getattr)},
                                {Py_tp_call, reinterpret_cast<void*>(node_call)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, attributes},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch.autograd.graph.Node", sizeof(NodeObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  node_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  types_by_name = PyDict_New();
  return node_type && types_by_name &&
         PyModule_AddObjectRef(module, "_Node", reinterpret_cast<PyObject*>(node_type)) == 0 && add_hooks(module) &&
         PyModule_AddObjectRef(module, "_AccumulateGrad",
                               reinterpret_cast<PyObject*>(type_of_kind("AccumulateGrad"))) == 0 &&
         add_function(module) && add_autograd_modes(module) && add_saved_tensor(module);
}

}  // namespace mica::python
