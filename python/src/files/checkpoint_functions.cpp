// Functions for saving and loading, beside the containers (archive.cpp). python/mica/_checkpoints uses them.
#include "io/buildable.h"
#include "io/file.h"
#include "io/pickle_globals.h"
#include "io/storage_view.h"
#include "operations/entry.h"
#include "types/storage_object.h"

namespace mica::python {

namespace {

// _write_file(path, buffers): writes a file of these bytes, which appears when it is complete.
PyObject* write_file(PyObject*, PyObject* args) try {
  PyObject *path, *parts;
  if (!PyArg_ParseTuple(args, "O&O!:_write_file", PyUnicode_FSConverter, &path, &PyList_Type, &parts)) return nullptr;
  const Owned encoded(path);
  io::AtomicFile file(PyBytes_AS_STRING(path));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts); ++i) {
    Py_buffer view;
    if (PyObject_GetBuffer(PyList_GET_ITEM(parts, i), &view, PyBUF_SIMPLE) < 0) return nullptr;
    auto release = [](Py_buffer* v) { PyBuffer_Release(v); };
    const std::unique_ptr<Py_buffer, decltype(release)> held(&view, release);
    file.write(view.buf, static_cast<size_t>(view.len));
  }
  file.commit();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// _view_storage(storage, dtype, offset, size, stride): a tensor within the storage, or an error.
PyObject* view_storage(PyObject*, PyObject* args) try {
  PyObject *storage, *dtype, *size, *stride;
  long long offset;
  if (!PyArg_ParseTuple(args, "OOLOO:_view_storage", &storage, &dtype, &offset, &size, &stride)) return nullptr;
  if (!is_storage(storage) || !is_dtype(dtype))
    return PyErr_Format(PyExc_TypeError, "a storage and a dtype were expected, not %s and %s",
                        Py_TYPE(storage)->tp_name, Py_TYPE(dtype)->tp_name);
  return wrap(io::view_storage(storage_of(storage), dtype_of_object(dtype), offset, dims_from_object(size),
                               dims_from_object(stride)));
} catch (...) {
  return raise_current_exception();
}

PyObject* resolve_named_globals(PyObject*, PyObject* pickle) try {
  if (!PyBytes_Check(pickle)) return PyErr_Format(PyExc_TypeError, "bytes were expected");
  const std::string done =
      io::resolve_named_globals({PyBytes_AS_STRING(pickle), static_cast<size_t>(PyBytes_GET_SIZE(pickle))});
  return PyBytes_FromStringAndSize(done.data(), static_cast<Py_ssize_t>(done.size()));
} catch (...) {
  return raise_current_exception();
}

// The names that a file may use (src/io/buildable.h).
PyObject* buildable_names(PyObject*, PyObject*) try {
  const std::vector<std::string> names = io::buildable_names();
  Owned list(checked(PyList_New(static_cast<Py_ssize_t>(names.size()))));
  for (size_t i = 0; i < names.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), checked(PyUnicode_FromString(names[i].c_str())));
  return list.release();
} catch (...) {
  return raise_current_exception();
}

}  // namespace

bool add_checkpoint_functions(PyObject* module) {
  static PyMethodDef functions[] = {{"_buildable_names", buildable_names, METH_NOARGS, nullptr},
                                    {"_resolve_named_globals", resolve_named_globals, METH_O, nullptr},
                                    {"_write_file", write_file, METH_VARARGS, nullptr},
                                    {"_view_storage", view_storage, METH_VARARGS, nullptr},
                                    {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
