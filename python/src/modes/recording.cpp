// Calls of compiled functions: kernels on large tensors are put off while one runs (mica/core/recording.h).
#include "mica/core/recording.h"

#include "modes/modes.h"
#include "operations/entry.h"

namespace mica::python {

// Calls the first argument with the others. A second error, of what had been put off, comes after the function's own.
static PyObject* call_recorded(PyObject* const* args, Py_ssize_t count, PyObject* names, bool on) {
  recording::Scope scope(on);
  PyObject* result = PyObject_Vectorcall(args[0], args + 1, static_cast<size_t>(count - 1), names);
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  if (!result) PyErr_Fetch(&type, &value, &traceback);
  try {
    Unlocked unlocked(recording::pending());
    scope.end();
  } catch (...) {
    if (result) {
      Py_DECREF(result);
      throw;
    }
  }
  if (!result) PyErr_Restore(type, value, traceback);
  return result;
}

static PyObject* call_compiled(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) try {
  if (count < 1) return PyErr_Format(PyExc_TypeError, "_call_compiled() takes a function");
  return call_recorded(args, count, names, true);
} catch (...) {
  return raise_current_exception();
}

static PyObject* call_uncompiled(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) try {
  if (count < 1) return PyErr_Format(PyExc_TypeError, "_call_uncompiled() takes a function");
  return call_recorded(args, count, names, false);
} catch (...) {
  return raise_current_exception();
}

static PyObject* is_recording(PyObject*, PyObject*) { return PyBool_FromLong(recording::active()); }

static PyObject* flush_recording(PyObject*, PyObject*) try {
  recording::flush("a call for it");
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* recording_counts(PyObject*, PyObject*) {
  const recording::Counts c = recording::counts();
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L}", "flushes", static_cast<long long>(c.flushes), "calls",
                       static_cast<long long>(c.calls), "loops", static_cast<long long>(c.loops), "dead",
                       static_cast<long long>(c.dead), "bytes_kept_out_of_memory",
                       static_cast<long long>(c.kept_apart));
}
static PyObject* reset_recording_counts(PyObject*, PyObject*) {
  recording::reset_counts();
  Py_RETURN_NONE;
}

static PyObject* set_least_elements(PyObject*, PyObject* number) {
  const long long least = PyLong_AsLongLong(number);
  if (least == -1 && PyErr_Occurred()) return nullptr;
  return PyLong_FromLongLong(recording::least_elements.exchange(least));
}

static PyObject* explain_recording(PyObject*, PyObject*) {
  recording::explain_from_now_on();
  Py_RETURN_NONE;
}
static PyObject* recording_explanation(PyObject*, PyObject*) try {
  return PyUnicode_FromString(recording::take_explanation().c_str());
} catch (...) {
  return raise_current_exception();
}

bool add_recording(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_call_compiled", as_cfunction(call_compiled), METH_FASTCALL | METH_KEYWORDS,
       "Calls a function while calls of kernels are put off and run together."},
      {"_call_uncompiled", as_cfunction(call_uncompiled), METH_FASTCALL | METH_KEYWORDS,
       "Calls a function within a compiled one as if that were not compiled."},
      {"_is_recording", is_recording, METH_NOARGS, nullptr},
      {"_flush_recording", flush_recording, METH_NOARGS, "Runs what has been put off on this thread."},
      {"_recording_counts", recording_counts, METH_NOARGS, nullptr},
      {"_reset_recording_counts", reset_recording_counts, METH_NOARGS, nullptr},
      {"_set_least_recorded_elements", set_least_elements, METH_O, "For tests; returns the number before."},
      {"_explain_recording", explain_recording, METH_NOARGS, nullptr},
      {"_recording_explanation", recording_explanation, METH_NOARGS, nullptr},
      {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
