#include "operations/function_object.h"

#include <structmember.h>

#include <cstddef>

#include "types/objects.h"

namespace mica::python {

namespace {

struct FunctionObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  EntryFunction* entry;
  PyMethodDef* definition;
  PyObject* module;  // __module__
  PyObject* dict;    // null until something is set
  PyObject* weakrefs;
};

PyTypeObject* function_type;

FunctionObject* as_function(PyObject* o) { return reinterpret_cast<FunctionObject*>(o); }

// self is null, by which an entry tells a function call from a method call.
PyObject* call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return as_function(self)->entry(nullptr, args, PyVectorcall_NARGS(nargsf), kwnames);
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  FunctionObject* f = as_function(self);
  if (f->weakrefs) PyObject_ClearWeakRefs(self);
  Py_CLEAR(f->dict);
  Py_CLEAR(f->module);
  type->tp_free(self);
  Py_DECREF(type);
}
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_function(self)->dict);
  Py_VISIT(as_function(self)->module);
  return 0;
}
int clear(PyObject* self) {
  Py_CLEAR(as_function(self)->dict);
  return 0;
}

PyObject* repr(PyObject* self) { return PyUnicode_FromFormat("<function %s>", as_function(self)->definition->ml_name); }

// ---- attributes

// The attribute that a program has set, or null.
PyObject* set_before(PyObject* self, const char* name) {
  PyObject* dict = as_function(self)->dict;
  return dict ? Py_XNewRef(PyDict_GetItemString(dict, name)) : nullptr;
}

PyObject* get_name(PyObject* self, void* attribute) {
  if (PyObject* set = set_before(self, static_cast<const char*>(attribute))) return set;
  return PyUnicode_FromString(as_function(self)->definition->ml_name);
}

// mica._functions.signatures reads the type stubs when somebody asks.
PyObject* get_described(PyObject* self, void* attribute) {
  const char* name = static_cast<const char*>(attribute);
  if (PyObject* set = set_before(self, name)) return set;
  Owned described(PyImport_ImportModule("mica._functions.signatures"));
  if (!described) return nullptr;
  const PyMethodDef* definition = as_function(self)->definition;
  return PyObject_CallMethod(described.get(), "attribute", "sss", name, definition->ml_name,
                             definition->ml_doc ? definition->ml_doc : "");
}

// functools.wraps and programs give functions other names and texts, which are kept in the dict.
int set_in_dict(PyObject* self, PyObject* value, void* attribute) {
  FunctionObject* f = as_function(self);
  if (!f->dict && !(f->dict = PyDict_New())) return -1;
  if (value) return PyDict_SetItemString(f->dict, static_cast<const char*>(attribute), value);
  return PyDict_DelItemString(f->dict, static_cast<const char*>(attribute));
}

PyObject* reduce(PyObject* self, PyObject*) { return PyUnicode_FromString(as_function(self)->definition->ml_name); }

PyGetSetDef* attributes() {
  static char name[] = "__name__", qualname[] = "__qualname__", doc[] = "__doc__", signature[] = "__signature__",
              text[] = "__text_signature__", defaults[] = "__defaults__", keywords[] = "__kwdefaults__",
              annotations[] = "__annotations__";
  static PyGetSetDef table[] = {{name, get_name, set_in_dict, nullptr, name},
                                {qualname, get_name, set_in_dict, nullptr, qualname},
                                {doc, get_described, set_in_dict, nullptr, doc},
                                {signature, get_described, set_in_dict, nullptr, signature},
                                {text, get_described, nullptr, nullptr, text},
                                {defaults, get_described, nullptr, nullptr, defaults},
                                {keywords, get_described, nullptr, nullptr, keywords},
                                {annotations, get_described, set_in_dict, nullptr, annotations},
                                {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                {}};
  return table;
}

}  // namespace

PyObject* new_function(Entry& entry, PyObject* module_name) {
  auto* f = PyObject_GC_New(FunctionObject, function_type);
  if (!f) return nullptr;
  f->vectorcall = call;
  f->entry = reinterpret_cast<EntryFunction*>(reinterpret_cast<void (*)()>(entry.definition.ml_meth));
  f->definition = &entry.definition;
  f->module = Py_NewRef(module_name);
  f->dict = f->weakrefs = nullptr;
  PyObject_GC_Track(f);
  return reinterpret_cast<PyObject*>(f);
}

bool add_function_type(PyObject* module) {
  static PyMemberDef members[] = {
      {"__module__", T_OBJECT, offsetof(FunctionObject, module), 0, nullptr},
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(FunctionObject, vectorcall), READONLY, nullptr},
      {"__dictoffset__", T_PYSSIZET, offsetof(FunctionObject, dict), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(FunctionObject, weakrefs), READONLY, nullptr},
      {}};
  static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_repr, reinterpret_cast<void*>(repr)},
                                {Py_tp_members, members},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, attributes()},
                                {0, nullptr}};
  static PyType_Spec spec = {
      "torch._C._Function", sizeof(FunctionObject), 0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  function_type = add_type(module, &spec);
  return function_type != nullptr;
}

}  // namespace mica::python
