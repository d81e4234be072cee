// The base of nn.Module: calls and attributes that do not pass through Python.
//
// A call without hooks goes straight to forward. An attribute that is neither in the class nor in the instance is
// looked for among parameters, buffers and submodules. What is rare stays in Python: calls with hooks (`_call_impl`)
// and the registration of parameters, buffers and submodules (`_set_registered`).
#include "training/module_object.h"

#include <structmember.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "exceptions.h"
#include "tensor/tensor_object.h"
#include "types/objects.h"

namespace mica::python {

// The memory of a module. Because this base is not empty, it decides the layout: the class of a module can be changed
// to any other, whatever mixins they have, and the dict is always at this place.
struct ModuleObject {
  PyObject_HEAD vectorcallfunc vectorcall;  // null until the first call: see call_module
  PyObject* weakrefs;
  PyObject* dict;
};

static PyTypeObject* base_type;  // _C._ModuleBase

// Names that are looked up often, as interned strings.
static struct {
  PyObject *forward, *call_impl, *set_registered, *setattr, *getattr, *getattribute, *init_subclass;
} names;
static std::array<PyObject*, 3> member_dicts;  // _parameters, _buffers, _modules
static std::array<PyObject*, 4> hook_dicts;    // dicts of the instance: a call has hooks if any of these is not empty
static std::array<PyObject*, 4> global_hooks;  // the dicts of hooks of all modules; null until nn is imported
static PyObject* own_call_impl;                // Module._call_impl: a class that overrides it is called through it
static PyObject* own_getattr;                  // _ModuleBase.__getattr__

// The instance's dict, borrowed; null if it has none yet.
static PyObject*& own_dict(PyObject* self) { return reinterpret_cast<ModuleObject*>(self)->dict; }

// ---- life

static void module_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (reinterpret_cast<ModuleObject*>(self)->weakrefs) PyObject_ClearWeakRefs(self);
  Py_CLEAR(own_dict(self));
  type->tp_free(self);
  Py_DECREF(type);
}
static int module_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(own_dict(self));
  return 0;
}
static int module_clear(PyObject* self) {
  Py_CLEAR(own_dict(self));
  return 0;
}

// ---- attributes

// A new reference to an entry of a dict of parameters, buffers or modules; null without an error if it is not there.
// Programs put dicts of their own there, which may make entries when asked.
static PyObject* entry_of(PyObject* members, PyObject* name) {
  if (PyDict_CheckExact(members) || PyODict_CheckExact(members))
    return Py_XNewRef(PyDict_GetItemWithError(members, name));
  int there = PySequence_Contains(members, name);
  return there == 1 ? PyObject_GetItem(members, name) : nullptr;
}

static PyObject* find_member(PyObject* self, PyObject* name) {
  PyObject* dict = own_dict(self);
  if (!dict) return nullptr;
  for (PyObject* kind : member_dicts) {
    PyObject* members = PyDict_GetItemWithError(dict, kind);
    if (!members) {
      if (PyErr_Occurred()) return nullptr;
      continue;
    }
    PyObject* found = entry_of(members, name);
    if (found || PyErr_Occurred()) return found;
  }
  return nullptr;
}

static PyObject* member_or_error(PyObject* self, PyObject* name) {
  PyObject* found = find_member(self, name);
  if (!found && !PyErr_Occurred())
    PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute '%U'", Py_TYPE(self)->tp_name, name);
  return found;
}

// The slot of classes that override neither __getattr__ nor __getattribute__.
static PyObject* get_attribute(PyObject* self, PyObject* name) {
  PyObject* found = _PyObject_GenericGetAttrWithDict(self, name, nullptr, /*suppress=*/1);
  return found || PyErr_Occurred() ? found : member_or_error(self, name);
}

// __getattr__, for classes that override it and call super().
static PyObject* getattr_method(PyObject* self, PyObject* name) {
  if (!PyUnicode_Check(name)) return PyErr_Format(PyExc_TypeError, "attribute name must be string");
  return member_or_error(self, name);
}

static bool is_registered(PyObject* self, PyObject* name) {
  Owned found(find_member(self, name));
  return found || PyErr_Occurred();
}

// object.__setattr__, or that of a class that comes after Module among the bases.
static PyObject* set_plain(PyObject* self, PyObject* name, PyObject* value) {
  PyObject* order = Py_TYPE(self)->tp_mro;
  const Py_ssize_t classes = PyTuple_GET_SIZE(order);
  if (PyTuple_GET_ITEM(order, classes - 2) == reinterpret_cast<PyObject*>(base_type)) {
    if (PyObject_GenericSetAttr(self, name, value) < 0) return nullptr;
    Py_RETURN_NONE;
  }
  Owned next(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PySuper_Type), base_type, self, nullptr));
  return next ? PyObject_CallMethodObjArgs(next.get(), names.setattr, name, value, nullptr) : nullptr;
}

// __setattr__ is a method and not a slot, so that object.__setattr__ works on modules: programs use it to keep a module
// from being registered.
static PyObject* setattr_method(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) return PyErr_Format(PyExc_TypeError, "expected 2 arguments, got %zd", count);
  PyObject *name = args[0], *value = args[1];
  if (is_tensor(value) || PyObject_TypeCheck(value, base_type) || is_registered(self, name)) {
    if (PyErr_Occurred()) return nullptr;
    // Returns None if it was registered; anything else means that it is a plain attribute after all.
    Owned done(PyObject_CallMethodObjArgs(self, names.set_registered, name, value, nullptr));
    if (!done || done.get() == Py_None) return done.release();
  }
  return set_plain(self, name, value);
}

// ---- calls

static bool is_empty(PyObject* hooks) { return PyDict_Check(hooks) && PyDict_GET_SIZE(hooks) == 0; }

// Whether a call only has to run forward. A module whose __init__ has not run has no dicts of hooks; Python reports
// that.
static bool is_plain_call(PyObject* self, PyObject* dict) {
  for (PyObject* hooks : global_hooks)
    if (!hooks || PyDict_GET_SIZE(hooks) != 0) return false;
  if (!dict || _PyType_Lookup(Py_TYPE(self), names.call_impl) != own_call_impl) return false;
  for (PyObject* name : hook_dicts) {
    PyObject* hooks = PyDict_GetItemWithError(dict, name);
    if (!hooks || !is_empty(hooks)) return false;
  }
  return true;
}

// Calls a function of the class with the module before the arguments, without making a method.
static PyObject* call_function(PyObject* function, PyObject* self, PyObject* const* args, size_t nargsf,
                               PyObject* keywords) {
  const auto positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {  // the caller lets us use the place before the arguments
    PyObject** with_self = const_cast<PyObject**>(args) - 1;
    PyObject* lent = std::exchange(with_self[0], self);
    PyObject* result = PyObject_Vectorcall(function, with_self, positional + 1, keywords);
    with_self[0] = lent;
    return result;
  }
  const size_t count = positional + (keywords ? static_cast<size_t>(PyTuple_GET_SIZE(keywords)) : 0);
  constexpr size_t kFew = 8;
  std::array<PyObject*, kFew> few;
  std::vector<PyObject*> many(count < kFew ? 0 : count + 1);
  PyObject** with_self = many.empty() ? few.data() : many.data();
  with_self[0] = self;
  std::copy(args, args + count, with_self + 1);
  return PyObject_Vectorcall(function, with_self, positional + 1, keywords);
}

static PyObject* call_module(PyObject* self, PyObject* args, PyObject* kwargs);

static PyObject* run_module(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  PyTypeObject* type = Py_TYPE(self);
  if (type->tp_call != call_module) {  // the class has been given a __call__ of its own since
    Owned call(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__call__"));
    return call ? call_function(call.get(), self, args, nargsf, keywords) : nullptr;
  }
  PyObject* dict = own_dict(self);
  if (!is_plain_call(self, dict)) {
    if (PyErr_Occurred()) return nullptr;
    Owned call(PyObject_GetAttr(self, names.call_impl));
    return call ? PyObject_Vectorcall(call.get(), args, nargsf, keywords) : nullptr;
  }
  if (type->tp_getattro == get_attribute && !PyDict_GetItemWithError(dict, names.forward)) {
    PyObject* function = _PyType_Lookup(type, names.forward);
    if (function && PyType_HasFeature(Py_TYPE(function), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
      Owned held = Owned::borrow(function);
      return call_function(function, self, args, nargsf, keywords);
    }
  }
  if (PyErr_Occurred()) return nullptr;
  Owned forward(PyObject_GetAttr(self, names.forward));
  return forward ? PyObject_Vectorcall(forward.get(), args, nargsf, keywords) : nullptr;
}

// When an error of the engine, or of a layer of this package, leaves a module, its message gets the module's name
// inside the model.
[[gnu::cold, gnu::noinline]] static void name_module_in_error(PyObject* self) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value && PyExceptionInstance_Check(value)) {
    if (traceback) PyException_SetTraceback(value, traceback);
    const char* way = is_engine_error(value) ? "locate" : "locate_own";
    Owned helper(PyImport_ImportModule("mica.nn.modules._errors"));
    Owned ignored(helper ? PyObject_CallMethod(helper.get(), way, "OO", self, value) : nullptr);
    PyErr_Clear();  // the error itself matters more than the name
  }
  PyErr_Restore(type, value, traceback);
}

static PyObject* vectorcall_module(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  PyObject* result = run_module(self, args, nargsf, keywords);
  if (!result) [[unlikely]]
    name_module_in_error(self);
  return result;
}

// The slot for calls. The first call of an instance comes here and then takes the short way, and so does
// super().__call__.
static PyObject* call_module(PyObject* self, PyObject* args, PyObject* kwargs) {
  reinterpret_cast<ModuleObject*>(self)->vectorcall = vectorcall_module;
  if (Py_TYPE(self)->tp_call == call_module) return PyVectorcall_Call(self, args, kwargs);
  // Called by a class that has a __call__ of its own.
  Owned call(PyObject_GetAttr(self, names.call_impl));
  return call ? PyObject_Call(call.get(), args, kwargs) : nullptr;
}

// ---- subclasses

// Gives a class that inherits our __getattr__ the slot that needs no exception for each parameter it looks up. The
// interpreter has given it the slot for a __getattr__ in Python, and does so again if one is assigned later.
static void use_own_attribute_slot(PyTypeObject* type) {
  if (_PyType_Lookup(type, names.getattr) == own_getattr &&
      _PyType_Lookup(type, names.getattribute) == _PyType_Lookup(&PyBaseObject_Type, names.getattribute))
    type->tp_getattro = get_attribute;
}

// Before 3.12 the interpreter does not pass this on to classes that are made in Python.
static void use_vectorcall(PyTypeObject* type) {
  if (type->tp_call != call_module) return;
  type->tp_vectorcall_offset = offsetof(ModuleObject, vectorcall);
  type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
}

static PyObject* init_subclass(PyObject* type, PyObject* args, PyObject* kwargs) {
  Owned next(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PySuper_Type), base_type, type, nullptr));
  Owned method(next ? PyObject_GetAttr(next.get(), names.init_subclass) : nullptr);
  PyObject* result = method ? PyObject_Call(method.get(), args, kwargs) : nullptr;
  if (result) {
    use_own_attribute_slot(reinterpret_cast<PyTypeObject*>(type));
    use_vectorcall(reinterpret_cast<PyTypeObject*>(type));
  }
  return result;
}

// _watch_module_hooks(Module, dicts): names the class Module, and the dicts of hooks of all modules.
static PyObject* watch_module_hooks(PyObject*, PyObject* args) {
  PyObject *type, *dicts;
  if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &type, &PyTuple_Type, &dicts)) return nullptr;
  if (PyTuple_GET_SIZE(dicts) != static_cast<Py_ssize_t>(global_hooks.size()))
    return PyErr_Format(PyExc_ValueError, "_watch_module_hooks: %zu dicts are watched", global_hooks.size());
  for (size_t i = 0; i < global_hooks.size(); ++i) {
    PyObject* dict = PyTuple_GET_ITEM(dicts, i);
    if (!PyDict_Check(dict)) return PyErr_Format(PyExc_TypeError, "_watch_module_hooks: the hooks are in dicts");
    Py_XSETREF(global_hooks[i], Py_NewRef(dict));
  }
  Py_XSETREF(own_call_impl, Py_XNewRef(_PyType_Lookup(reinterpret_cast<PyTypeObject*>(type), names.call_impl)));
  Py_RETURN_NONE;
}

bool add_module_base(PyObject* module) {
  names = {PyUnicode_InternFromString("forward"),          PyUnicode_InternFromString("_call_impl"),
           PyUnicode_InternFromString("_set_registered"),  PyUnicode_InternFromString("__setattr__"),
           PyUnicode_InternFromString("__getattr__"),      PyUnicode_InternFromString("__getattribute__"),
           PyUnicode_InternFromString("__init_subclass__")};
  member_dicts = {PyUnicode_InternFromString("_parameters"), PyUnicode_InternFromString("_buffers"),
                  PyUnicode_InternFromString("_modules")};
  hook_dicts = {PyUnicode_InternFromString("_forward_hooks"), PyUnicode_InternFromString("_forward_pre_hooks"),
                PyUnicode_InternFromString("_backward_hooks"), PyUnicode_InternFromString("_backward_pre_hooks")};
  static PyMethodDef methods[] = {
      {"__getattr__", getattr_method, METH_O, "A parameter, buffer or submodule."},
      {"__setattr__", as_cfunction(setattr_method), METH_FASTCALL,
       "Sets an attribute; parameters, buffers and modules are registered."},
      {"__init_subclass__", as_cfunction(init_subclass), METH_CLASS | METH_VARARGS | METH_KEYWORDS, nullptr},
      {}};
  static PyMethodDef functions[] = {{"_watch_module_hooks", watch_module_hooks, METH_VARARGS, nullptr}, {}};
  static PyMemberDef members[] = {
      {"__dictoffset__", T_PYSSIZET, offsetof(ModuleObject, dict), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(ModuleObject, weakrefs), READONLY, nullptr},
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(ModuleObject, vectorcall), READONLY, nullptr},
      {}};
  static PyGetSetDef attributes[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                     {}};
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(module_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(module_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(module_clear)},
                                {Py_tp_call, reinterpret_cast<void*>(call_module)},
                                {Py_tp_members, members},
                                {Py_tp_getset, attributes},
                                {Py_tp_methods, methods},
                                {Py_tp_doc, const_cast<char*>("The part of nn.Module that is the engine's.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"mica._C._ModuleBase", sizeof(ModuleObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  base_type = add_type(module, &spec);
  if (!base_type) return false;
  own_getattr = _PyType_Lookup(base_type, names.getattr);
  return own_getattr && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
