// torch.layout and torch.memory_format: named singletons.
#include "types/objects.h"

namespace mica::python {

PyTypeObject* layout_type = nullptr;
PyTypeObject* memory_format_type = nullptr;

static constexpr const char* kLayoutNames[] = {"strided",    "sparse_coo", "sparse_csr", "sparse_csc",
                                               "sparse_bsr", "sparse_bsc", "jagged"};
static constexpr const char* kFormatNames[] = {"contiguous_format", "preserve_format", "channels_last",
                                               "channels_last_3d"};
static constexpr int kNumLayouts = std::size(kLayoutNames);
static PyObject* layout_objects[kNumLayouts];

static const char* layout_name(PyObject* o) { return kLayoutNames[static_cast<int>(layout_of_object(o))]; }
static const char* format_name(PyObject* o) { return kFormatNames[static_cast<int>(memory_format_of_object(o))]; }

PyObject* layout_object(Layout layout) { return Py_NewRef(layout_objects[static_cast<int>(layout)]); }

static PyObject* layout_repr(PyObject* self) { return PyUnicode_FromFormat("torch.%s", layout_name(self)); }
static PyObject* format_repr(PyObject* self) { return PyUnicode_FromFormat("torch.%s", format_name(self)); }

// Pickles as a call of mica._C._singleton, which needs no module called torch.
static PyObject* reduce_by_name(const char* name) {
  Owned module(PyImport_ImportModule("mica._C"));
  if (!module) return nullptr;
  Owned getter(PyObject_GetAttrString(module.get(), "_singleton"));
  return getter ? Py_BuildValue("O(s)", getter.get(), name) : nullptr;
}
static PyObject* layout_reduce(PyObject* self, PyObject*) { return reduce_by_name(layout_name(self)); }
static PyObject* format_reduce(PyObject* self, PyObject*) { return reduce_by_name(format_name(self)); }
static PyObject* same(PyObject* self, PyObject*) { return Py_NewRef(self); }

static PyObject* singleton(PyObject*, PyObject* name) {
  Owned module(PyImport_ImportModule("mica._C"));
  return module ? PyObject_GetAttr(module.get(), name) : nullptr;
}

bool add_layouts(PyObject* module) {
  static PyMethodDef layout_methods[] = {{"__reduce__", layout_reduce, METH_NOARGS, nullptr},
                                         {"__copy__", same, METH_NOARGS, nullptr},
                                         {"__deepcopy__", same, METH_O, nullptr},
                                         {}};
  static PyMethodDef format_methods[] = {{"__reduce__", format_reduce, METH_NOARGS, nullptr},
                                         {"__copy__", same, METH_NOARGS, nullptr},
                                         {"__deepcopy__", same, METH_O, nullptr},
                                         {}};
  static PyType_Slot layout_slots[] = {
      {Py_tp_repr, reinterpret_cast<void*>(layout_repr)}, {Py_tp_methods, layout_methods}, {0, nullptr}};
  static PyType_Slot format_slots[] = {
      {Py_tp_repr, reinterpret_cast<void*>(format_repr)}, {Py_tp_methods, format_methods}, {0, nullptr}};
  constexpr auto kFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE;
  static PyType_Spec layout_spec = {"torch.layout", sizeof(LayoutObject), 0, kFlags, layout_slots};
  static PyType_Spec format_spec = {"torch.memory_format", sizeof(MemoryFormatObject), 0, kFlags, format_slots};
  layout_type = add_type(module, &layout_spec);
  memory_format_type = add_type(module, &format_spec);
  if (!layout_type || !memory_format_type) return false;
  for (int i = 0; i < kNumLayouts; ++i) {
    auto* o = PyObject_New(LayoutObject, layout_type);
    if (!o) return false;
    o->layout = static_cast<Layout>(i);
    layout_objects[i] = reinterpret_cast<PyObject*>(o);
    if (PyModule_AddObjectRef(module, kLayoutNames[i], layout_objects[i]) < 0) return false;
  }
  for (int i = 0; i < static_cast<int>(std::size(kFormatNames)); ++i) {
    auto* o = PyObject_New(MemoryFormatObject, memory_format_type);
    if (!o) return false;
    o->format = static_cast<MemoryFormat>(i);
    if (PyModule_AddObjectRef(module, kFormatNames[i], reinterpret_cast<PyObject*>(o)) < 0) return false;
  }
  static PyMethodDef restore = {"_singleton", singleton, METH_O, "The layout or memory format of that name."};
  Owned module_name(PyModule_GetNameObject(module));
  Owned function(PyCFunction_NewEx(&restore, nullptr, module_name.get()));
  return function && PyModule_AddObjectRef(module, "_singleton", function.get()) == 0;
}

}  // namespace mica::python
