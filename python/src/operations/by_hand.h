// The beginning and end of an entry that is written by hand: no C++ exception gets into the interpreter.
#pragma once

#include "operations/entry.h"

#define MICA_METHOD(name) \
  static PyObject* name(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) try
// The self of a module's function is the module, not an argument.
#define MICA_FUNCTION(name) \
  static PyObject* name([[maybe_unused]] PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) try
#define MICA_ENTRY_END                \
  catch (...) {                       \
    return raise_current_exception(); \
  }
