// Settings of the process and of its threads that belong to no operation.
#include <atomic>

#include "core/uninitialized.h"
#include "interop/foreign_memory.h"
#include "mica/build_info.h"
#include "mica/warning.h"
#include "operations/entry.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// Calls a Python function. Valgrind finds this function by its name (--toggle-collect), and counts what runs within.
extern "C" __attribute__((visibility("default"), noinline)) PyObject* mica_counted_region(PyObject*,
                                                                                          PyObject* function) {
  return PyObject_CallNoArgs(function);
}

namespace mica::python {

// Sets whether subnormal numbers count as zero in this thread. Returns false where the processor cannot do that.
static bool flush_denormals(bool on) {
#if defined(__x86_64__)
  constexpr unsigned kFlushResults = 0x8000, kFlushOperands = 0x0040;
  const unsigned both = kFlushResults | kFlushOperands;
  _mm_setcsr(on ? _mm_getcsr() | both : _mm_getcsr() & ~both);
  return true;
#elif defined(__aarch64__)
  constexpr uint64_t kFlush = 1u << 24;
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  control = on ? control | kFlush : control & ~kFlush;
  asm volatile("msr fpcr, %0" ::"r"(control));
  return true;
#else
  return !on;
#endif
}

static PyObject* set_flush_denormal(PyObject*, PyObject* mode) {
  if (!PyBool_Check(mode))
    return PyErr_Format(PyExc_TypeError, "set_flush_denormal expects a bool, but got %s", Py_TYPE(mode)->tp_name);
  return PyBool_FromLong(flush_denormals(mode == Py_True));
}

static PyObject* set_warn_always(PyObject*, PyObject* on) {
  if (!PyBool_Check(on))
    return PyErr_Format(PyExc_TypeError, "setWarnOnlyOnce expects a bool, but got %s", Py_TYPE(on)->tp_name);
  warn_always = on == Py_True;
  Py_RETURN_NONE;
}

static PyObject* is_warn_always(PyObject*, PyObject*) { return PyBool_FromLong(warn_always); }

static PyObject* set_fill(PyObject*, PyObject* value) {
  const int fill = PyObject_IsTrue(value);
  if (fill < 0) return nullptr;
  mica::set_fill_uninitialized(fill);
  Py_RETURN_NONE;
}

// Kept without effect: sums of products of float16 are computed in float32.
static std::atomic<bool> short_sums = false;

static PyObject* set_short_sums(PyObject*, PyObject* value) {
  const int on = PyObject_IsTrue(value);
  if (on < 0) return nullptr;
  short_sums = on != 0;
  Py_RETURN_NONE;
}

static PyObject* get_short_sums(PyObject*, PyObject*) { return PyBool_FromLong(short_sums); }

static PyObject* set_determinism(PyObject*, PyObject* args) {
  int on, warn_only;
  if (!PyArg_ParseTuple(args, "pp:_set_determinism", &on, &warn_only)) return nullptr;
  mica::set_determinism(!on ? Determinism::NotAsked : warn_only ? Determinism::Warn : Determinism::Refuse);
  Py_RETURN_NONE;
}

static PyObject* build_info(PyObject*, PyObject*) try {
  const BuildInfo info = mica::build_info();
  return Py_BuildValue("{s:s,s:s,s:s,s:s}", "compiler", info.compiler.c_str(), "highway", info.highway.c_str(),
                       "cpu_target", info.cpu_target.c_str(), "compiled_targets", info.compiled_targets.c_str());
} catch (...) {
  return raise_current_exception();
}

static PyObject* is_nonzero(PyObject* self, PyObject*) {
  const int truth = PyObject_IsTrue(self);
  return truth < 0 ? nullptr : PyBool_FromLong(truth);
}

bool add_settings(PyObject* module) {
  static PyMethodDef functions[] = {
      {"set_flush_denormal", set_flush_denormal, METH_O,
       "Treats numbers too small to be normal as zero in this thread; returns whether the processor can."},
      {"_build_info", build_info, METH_NOARGS, nullptr},
      {"_counted_region", mica_counted_region, METH_O, nullptr},
      {"_set_fill_uninitialized", set_fill, METH_O, nullptr},
      {"_set_determinism", set_determinism, METH_VARARGS, nullptr},
      {"_set_cpu_allow_fp16_reduced_precision_reduction", set_short_sums, METH_O, nullptr},
      {"_get_cpu_allow_fp16_reduced_precision_reduction", get_short_sums, METH_NOARGS, nullptr},
      {"_set_warn_always", set_warn_always, METH_O, nullptr},
      {"_is_warn_always", is_warn_always, METH_NOARGS, nullptr},
      {}};
  static PyMethodDef methods[] = {{"is_nonzero", is_nonzero, METH_NOARGS, "Whether the single element is not zero."},
                                  {}};
  return PyModule_AddFunctions(module, functions) == 0 && add_tensor_methods(methods);
}

}  // namespace mica::python
