// Autocast and the profiler: modes of the calling thread that operations' entries test.
#include "modes/modes.h"

#include "mica/autocast.h"
#include "mica/profiler.h"
#include "operations/entry.h"

namespace mica::python {

// ---- autocast

// A device type by name; torch means CUDA where none is given.
static DeviceType device_type_from(PyObject* name, const char* function) {
  if (!name) return DeviceType::CUDA;
  if (!PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "%s(): argument 'device_type' (position 1) must be str, not %s", function,
                 Py_TYPE(name)->tp_name);
    throw PythonError();
  }
  return device_from_object(name).type();
}

static PyObject* is_autocast_enabled(PyObject*, PyObject* args, PyObject* named) try {
  static const char* names[] = {"device_type", nullptr};
  PyObject* type = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, named, "|O:is_autocast_enabled", const_cast<char**>(names), &type))
    return nullptr;
  return PyBool_FromLong(autocast::is_enabled(device_type_from(type, "is_autocast_enabled")));
} catch (...) {
  return raise_current_exception();
}

static PyObject* set_autocast_enabled(PyObject*, PyObject* args, PyObject* named) try {
  static const char* names[] = {"device_type", "enabled", nullptr};
  PyObject *type = nullptr, *on = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, named, "|OO:set_autocast_enabled", const_cast<char**>(names), &type, &on))
    return nullptr;
  if (!on) std::swap(type, on);  // a single argument says whether it is on
  if (!on)
    return PyErr_Format(PyExc_TypeError,
                        "set_autocast_enabled() missing 2 required positional arguments: \"device_type\", \"enabled\"");
  const int enabled = PyObject_IsTrue(on);
  if (enabled < 0) return nullptr;
  autocast::set_enabled(device_type_from(type, "set_autocast_enabled"), enabled);
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* get_autocast_dtype(PyObject*, PyObject* args, PyObject* named) try {
  static const char* names[] = {"device_type", nullptr};
  PyObject* type = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, named, "O:get_autocast_dtype", const_cast<char**>(names), &type))
    return nullptr;
  return dtype_object(autocast::dtype(device_type_from(type, "get_autocast_dtype")));
} catch (...) {
  return raise_current_exception();
}

static PyObject* set_autocast_dtype(PyObject*, PyObject* args, PyObject* named) try {
  static const char* names[] = {"device_type", "dtype", nullptr};
  PyObject *type, *dtype;
  if (!PyArg_ParseTupleAndKeywords(args, named, "OO:set_autocast_dtype", const_cast<char**>(names), &type, &dtype))
    return nullptr;
  if (!is_dtype_like(dtype))
    return PyErr_Format(PyExc_TypeError,
                        "set_autocast_dtype(): argument 'dtype' (position 2) must be torch.dtype, not %s",
                        Py_TYPE(dtype)->tp_name);
  autocast::set_dtype(device_type_from(type, "set_autocast_dtype"), dtype_from_object(dtype));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* is_autocast_cache_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong(autocast::is_cache_enabled());
}
static PyObject* set_autocast_cache_enabled(PyObject*, PyObject* on) {
  const int enabled = PyObject_IsTrue(on);
  if (enabled < 0) return nullptr;
  autocast::set_cache_enabled(enabled);
  Py_RETURN_NONE;
}
static PyObject* clear_autocast_cache(PyObject*, PyObject*) {
  autocast::clear_cache();
  Py_RETURN_NONE;
}
static PyObject* autocast_increment_nesting(PyObject*, PyObject*) {
  return PyLong_FromLong(autocast::increment_nesting());
}
static PyObject* autocast_decrement_nesting(PyObject*, PyObject*) {
  return PyLong_FromLong(autocast::decrement_nesting());
}

// ---- the profiler

static PyObject* profiler_start(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"shapes", "memory", "stacks", nullptr};
  int shapes = 0, memory = 0, stacks = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|ppp", const_cast<char**>(names), &shapes, &memory, &stacks))
    return nullptr;
  profiler::start({.shapes = shapes != 0, .memory = memory != 0, .stacks = stacks != 0});
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* shapes_tuple(const std::vector<DimVector>& shapes) {
  Owned tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(shapes.size()))));
  for (size_t i = 0; i < shapes.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(size_object(shapes[i])));
  return tuple.release();
}
static PyObject* dtypes_tuple(const std::vector<DType>& dtypes) {
  Owned tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(dtypes.size()))));
  for (size_t i = 0; i < dtypes.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(dtype_object(dtypes[i])));
  return tuple.release();
}

static PyObject* results_tuple(const std::vector<std::optional<DimVector>>& shapes) {
  Owned tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(shapes.size()))));
  for (size_t i = 0; i < shapes.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i),
                     shapes[i] ? checked(size_object(*shapes[i])) : Py_NewRef(Py_None));
  return tuple.release();
}

// (name, kind, parent, thread, start_ns, end_ns, bytes, shapes, dtypes, shapes of results, stack, sequence) of each
// event
static PyObject* profiler_stop(PyObject*, PyObject*) try {
  const std::vector<profiler::Event> events = profiler::stop();
  static constexpr const char* kKinds[] = {"operation", "node", "range"};
  Owned list(checked(PyList_New(static_cast<Py_ssize_t>(events.size()))));
  for (size_t i = 0; i < events.size(); ++i) {
    const profiler::Event& e = events[i];
    Owned shapes(shapes_tuple(e.shapes)), dtypes(dtypes_tuple(e.dtypes)), results(results_tuple(e.results));
    PyObject* row =
        checked(Py_BuildValue("(ssiKLLLOOOsL)", e.name.c_str(), kKinds[static_cast<int>(e.kind)], e.parent,
                              static_cast<unsigned long long>(e.thread), static_cast<long long>(e.start_ns),
                              static_cast<long long>(e.end_ns), static_cast<long long>(e.bytes), shapes.get(),
                              dtypes.get(), results.get(), e.stack.c_str(), static_cast<long long>(e.sequence)));
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), row);
  }
  return list.release();
} catch (...) {
  return raise_current_exception();
}

static PyObject* profiler_recording(PyObject*, PyObject*) { return PyBool_FromLong(profiler::recording()); }

static PyObject* profiler_begin(PyObject*, PyObject* name) try {
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  profiler::begin(text, profiler::Kind::Range);
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}
static PyObject* profiler_end(PyObject*, PyObject*) {
  profiler::end();
  Py_RETURN_NONE;
}

bool add_modes(PyObject* module) {
  static PyMethodDef functions[] = {
      {"is_autocast_enabled", as_cfunction(is_autocast_enabled), METH_VARARGS | METH_KEYWORDS,
       "Whether autocast is on for a type of device."},
      {"set_autocast_enabled", as_cfunction(set_autocast_enabled), METH_VARARGS | METH_KEYWORDS, nullptr},
      {"get_autocast_dtype", as_cfunction(get_autocast_dtype), METH_VARARGS | METH_KEYWORDS,
       "The dtype that autocast casts to."},
      {"set_autocast_dtype", as_cfunction(set_autocast_dtype), METH_VARARGS | METH_KEYWORDS, nullptr},
      {"is_autocast_cache_enabled", is_autocast_cache_enabled, METH_NOARGS, nullptr},
      {"set_autocast_cache_enabled", set_autocast_cache_enabled, METH_O, nullptr},
      {"clear_autocast_cache", clear_autocast_cache, METH_NOARGS, nullptr},
      {"autocast_increment_nesting", autocast_increment_nesting, METH_NOARGS, nullptr},
      {"autocast_decrement_nesting", autocast_decrement_nesting, METH_NOARGS, nullptr},
      {"_profiler_start", as_cfunction(profiler_start), METH_VARARGS | METH_KEYWORDS, nullptr},
      {"_profiler_stop", profiler_stop, METH_NOARGS, "The events since _profiler_start."},
      {"_profiler_recording", profiler_recording, METH_NOARGS, nullptr},
      {"_profiler_begin", profiler_begin, METH_O, "Opens a named range."},
      {"_profiler_end", profiler_end, METH_NOARGS, nullptr},
      {}};
  profiler::describe_stack = describe_python_stack;
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
