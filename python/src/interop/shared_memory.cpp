// The two ends of the shared memory in which worker processes hand over batches.
#include "data/segments.h"
#include "operations/entry.h"
#include "types/storage_object.h"

namespace mica::python {

namespace {

template <class T>
struct Holder {
  PyObject_HEAD T* value;
};

template <class T>
T& held_by(PyObject* self) {
  return *reinterpret_cast<Holder<T>*>(self)->value;
}

template <class T>
PyObject* make(PyTypeObject* type, PyObject*, PyObject*) try {
  auto value = std::make_unique<T>();
  auto* self = reinterpret_cast<Holder<T>*>(checked(type->tp_alloc(type, 0)));
  self->value = value.release();
  return reinterpret_cast<PyObject*>(self);
} catch (...) {
  return raise_current_exception();
}

template <class T>
void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<Holder<T>*>(self)->value;
  type->tp_free(self);
  Py_DECREF(type);
}

using data::SegmentPool;
using data::SegmentViews;

PyObject* list_of(const std::vector<uint32_t>& ids) {
  Owned list(checked(PyList_New(static_cast<Py_ssize_t>(ids.size()))));
  for (size_t i = 0; i < ids.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), checked(PyLong_FromUnsignedLong(ids[i])));
  return list.release();
}

template <class F>
PyObject* for_each_id(PyObject* ids, F use) {
  Owned items(checked(PySequence_Fast(ids, "a sequence of segments was expected")));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    use(static_cast<uint32_t>(int_from_object(PySequence_Fast_GET_ITEM(items.get(), i))));
  Py_RETURN_NONE;
}

// ---- _SegmentPool

PyObject* allocate(PyObject* self, PyObject* nbytes) try {
  const int64_t n = int_from_object(nbytes);
  MICA_CHECK(n >= 0, "a segment of ", n, " bytes");
  return storage_object(held_by<SegmentPool>(self).allocate(static_cast<size_t>(n)));
} catch (...) {
  return raise_current_exception();
}

// (segment, capacity, descriptor or -1), or None for a storage that is not of the pool
PyObject* send(PyObject* self, PyObject* storage) try {
  if (!is_storage(storage)) return PyErr_Format(PyExc_TypeError, "a storage was expected");
  const auto handle = held_by<SegmentPool>(self).send(*storage_of(storage));
  if (!handle) Py_RETURN_NONE;
  return Py_BuildValue("(Ini)", handle->id, static_cast<Py_ssize_t>(handle->capacity), handle->fd);
} catch (...) {
  return raise_current_exception();
}

PyObject* close_descriptors(PyObject* self, PyObject*) try {
  held_by<SegmentPool>(self).close_descriptors();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

PyObject* give_back(PyObject* self, PyObject* ids) try {
  return for_each_id(ids, [&](uint32_t id) { held_by<SegmentPool>(self).give_back(id); });
} catch (...) {
  return raise_current_exception();
}

PyObject* take_back(PyObject* self, PyObject* args) try {
  unsigned id;
  int announced;
  if (!PyArg_ParseTuple(args, "Ip:take_back", &id, &announced)) return nullptr;
  held_by<SegmentPool>(self).take_back(id, announced != 0);
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

PyObject* take_dropped(PyObject* self, PyObject*) try {
  return list_of(held_by<SegmentPool>(self).take_dropped());
} catch (...) {
  return raise_current_exception();
}

// ---- _SegmentViews

PyObject* add(PyObject* self, PyObject* args) try {
  unsigned id;
  int fd;
  Py_ssize_t capacity;
  if (!PyArg_ParseTuple(args, "Iin:add", &id, &fd, &capacity)) return nullptr;
  held_by<SegmentViews>(self).add(id, fd, static_cast<size_t>(capacity));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

PyObject* open(PyObject* self, PyObject* args) try {
  unsigned id;
  Py_ssize_t nbytes;
  if (!PyArg_ParseTuple(args, "In:open", &id, &nbytes)) return nullptr;
  return storage_object(held_by<SegmentViews>(self).open(id, static_cast<size_t>(nbytes)));
} catch (...) {
  return raise_current_exception();
}

PyObject* forget(PyObject* self, PyObject* ids) try {
  return for_each_id(ids, [&](uint32_t id) { held_by<SegmentViews>(self).forget(id); });
} catch (...) {
  return raise_current_exception();
}

PyObject* take_returned(PyObject* self, PyObject*) try {
  return list_of(held_by<SegmentViews>(self).take_returned());
} catch (...) {
  return raise_current_exception();
}

template <class T>
bool add_holder(PyObject* module, const char* name, PyMethodDef* methods) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make<T>)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc<T>)},
                         {Py_tp_methods, methods},
                         {0, nullptr}};
  PyType_Spec spec = {name, sizeof(Holder<T>), 0, Py_TPFLAGS_DEFAULT, slots};
  return add_type(module, &spec) != nullptr;
}

}  // namespace

bool add_shared_memory(PyObject* module) {
  static PyMethodDef pool[] = {{"allocate", allocate, METH_O, nullptr},
                               {"send", send, METH_O, nullptr},
                               {"close_descriptors", close_descriptors, METH_NOARGS, nullptr},
                               {"give_back", give_back, METH_O, nullptr},
                               {"take_back", take_back, METH_VARARGS, nullptr},
                               {"take_dropped", take_dropped, METH_NOARGS, nullptr},
                               {}};
  static PyMethodDef views[] = {{"add", add, METH_VARARGS, nullptr},
                                {"open", open, METH_VARARGS, nullptr},
                                {"forget", forget, METH_O, nullptr},
                                {"take_returned", take_returned, METH_NOARGS, nullptr},
                                {}};
  return add_holder<SegmentPool>(module, "mica._C._SegmentPool", pool) &&
         add_holder<SegmentViews>(module, "mica._C._SegmentViews", views);
}

}  // namespace mica::python
