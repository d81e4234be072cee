// torch.Size: a tuple of integers that stays a Size when sliced, joined or repeated.
#include "types/objects.h"

namespace mica::python {

PyTypeObject* size_type = nullptr;

// Freed objects by length. They hold a reference to their type; their own count is zero.
static constexpr Py_ssize_t kLengths = 7;
static constexpr int kMaxFree = 16;
static PyObject* free_sizes[kLengths][kMaxFree];
static int num_free[kLengths];

// A Size whose items are yet to be set. It is unknown to the collector: integers are part of no cycle.
static PyObject* allocate(Py_ssize_t length) {
  PyObject* o;
  if (length < kLengths && num_free[length] > 0) [[likely]] {
    o = free_sizes[length][--num_free[length]];
    _Py_NewReference(o);
  } else {
    o = reinterpret_cast<PyObject*>(PyObject_GC_NewVar(PyTupleObject, size_type, length));
    if (!o) return nullptr;
    for (Py_ssize_t i = 0; i < length; ++i) PyTuple_SET_ITEM(o, i, nullptr);
  }
#if PY_VERSION_HEX >= 0x030E0000
  reinterpret_cast<PyTupleObject*>(o)->ob_hash = -1;  // not computed yet
#endif
  return o;
}

static void size_dealloc(PyObject* o) {
  if (PyObject_GC_IsTracked(o)) PyObject_GC_UnTrack(o);
  const Py_ssize_t length = PyTuple_GET_SIZE(o);
  for (Py_ssize_t i = 0; i < length; ++i) {
    Py_XDECREF(PyTuple_GET_ITEM(o, i));
    PyTuple_SET_ITEM(o, i, nullptr);
  }
  if (length < kLengths && num_free[length] < kMaxFree) [[likely]] {
    free_sizes[length][num_free[length]++] = o;
    return;
  }
  PyObject_GC_Del(o);
  Py_DECREF(size_type);
}

PyObject* size_object(IntArrayRef sizes) {
  PyObject* o = allocate(static_cast<Py_ssize_t>(sizes.size()));
  if (!o) return nullptr;
  for (size_t i = 0; i < sizes.size(); ++i) {
    PyObject* item = PyLong_FromLongLong(sizes[i]);
    if (!item) {
      Py_DECREF(o);
      return nullptr;
    }
    PyTuple_SET_ITEM(o, static_cast<Py_ssize_t>(i), item);
  }
  return o;
}

// A Size of the items of `tuple`, which is consumed.
static PyObject* as_size(PyObject* tuple) {
  Owned owner(tuple);
  if (!tuple || !PyTuple_Check(tuple)) return owner.release();  // NotImplemented, or an error
  Py_ssize_t n = PyTuple_GET_SIZE(tuple);
  PyObject* o = allocate(n);
  if (!o) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(o, i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
  PyObject_GC_Track(o);  // the items may be any objects
  return o;
}

static PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  Owned self(PyTuple_Type.tp_new(type, args, kwargs));
  if (!self) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(self.get(), i);
    if (PyLong_CheckExact(item)) continue;
    PyObject* number = PyIndex_Check(item) ? PyNumber_Index(item) : nullptr;
    if (!number) {
      PyErr_Clear();
      return PyErr_Format(PyExc_TypeError, "torch.Size() takes an iterable of 'int' (item %zd is '%s')", i,
                          Py_TYPE(item)->tp_name);
    }
    PyTuple_SET_ITEM(self.get(), i, number);
    Py_DECREF(item);
  }
  return self.release();
}

static PyObject* size_repr(PyObject* self) {
  Owned list(PySequence_List(self));
  return list ? PyUnicode_FromFormat("torch.Size(%R)", list.get()) : nullptr;
}

static PyObject* size_numel(PyObject* self, PyObject*) {
  int64_t numel = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); ++i) {
    long long extent = PyLong_AsLongLong(PyTuple_GET_ITEM(self, i));
    if (extent == -1 && PyErr_Occurred()) return nullptr;
    if (__builtin_mul_overflow(numel, extent, &numel))
      return PyErr_Format(PyExc_OverflowError, "the number of elements of %R does not fit into 64 bits", self);
  }
  return PyLong_FromLongLong(numel);
}

static PyObject* size_concat(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(b))
    return PyErr_Format(PyExc_TypeError, "can only concatenate tuple (not %s) to torch.Size", Py_TYPE(b)->tp_name);
  return as_size(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
static PyObject* size_repeat(PyObject* self, Py_ssize_t n) {
  return as_size(PyTuple_Type.tp_as_sequence->sq_repeat(self, n));
}
static PyObject* size_subscript(PyObject* self, PyObject* index) {
  PyObject* item = PyTuple_Type.tp_as_mapping->mp_subscript(self, index);
  return PySlice_Check(index) ? as_size(item) : item;
}

// `(1,) + size` is a Size too: the number protocol sees both operands, the sequence protocol only a left one.
static PyObject* size_add(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
  return size_concat(a, b);
}

static PyObject* size_reduce(PyObject* self, PyObject*) {
  Owned module(PyImport_ImportModule("mica._C"));
  if (!module) return nullptr;
  Owned restore(PyObject_GetAttrString(module.get(), "_size"));
  Owned items(PySequence_List(self));
  return restore && items ? Py_BuildValue("O(O)", restore.get(), items.get()) : nullptr;
}
static PyObject* size_of_items(PyObject*, PyObject* items) {
  return PyObject_CallOneArg(reinterpret_cast<PyObject*>(size_type), items);
}

bool add_size(PyObject* module) {
  static PyMethodDef methods[] = {{"numel", size_numel, METH_NOARGS, "The product of the extents."},
                                  {"__reduce__", size_reduce, METH_NOARGS, nullptr},
                                  {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(size_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(size_dealloc)},
                                {Py_tp_repr, reinterpret_cast<void*>(size_repr)},
                                {Py_tp_methods, methods},
                                {Py_sq_concat, reinterpret_cast<void*>(size_concat)},
                                {Py_sq_repeat, reinterpret_cast<void*>(size_repeat)},
                                {Py_mp_subscript, reinterpret_cast<void*>(size_subscript)},
                                {Py_nb_add, reinterpret_cast<void*>(size_add)},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch.Size", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};
  size_type = add_type(module, &spec, reinterpret_cast<PyObject*>(&PyTuple_Type));
  static PyMethodDef restore = {"_size", size_of_items, METH_O, "A Size of these extents."};
  Owned module_name(PyModule_GetNameObject(module));
  Owned function(PyCFunction_NewEx(&restore, nullptr, module_name.get()));
  return size_type && function && PyModule_AddObjectRef(module, "_size", function.get()) == 0;
}

}  // namespace mica::python
