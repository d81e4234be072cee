// The modes of one kind that a thread has entered. A kind has the name that errors use, and `set_active`, which is
// called when the stack becomes empty or stops being so.
#pragma once

#include <vector>

#include "object.h"

namespace mica::python {

template <class Kind>
class ModeStack {
 public:
  static bool empty() { return modes.empty(); }

  // Takes the innermost mode off while it answers, so that the functions it calls go to the next one.
  class Aside {
   public:
    Aside() : mode_(modes.back()) {
      modes.pop_back();
      Kind::set_active(!modes.empty());
    }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;
    ~Aside() {
      modes.push_back(mode_);
      Kind::set_active(true);
    }
    PyObject* mode() const { return mode_; }

   private:
    PyObject* mode_;
  };

  // ---- what the package's modes build upon

  static PyObject* push(PyObject*, PyObject* mode) {
    modes.push_back(Py_NewRef(mode));
    Kind::set_active(true);
    Py_RETURN_NONE;
  }
  static PyObject* pop(PyObject*, PyObject*) {
    if (modes.empty()) return PyErr_Format(PyExc_RuntimeError, "no %s is active", Kind::name);
    PyObject* mode = modes.back();
    modes.pop_back();
    Kind::set_active(!modes.empty());
    return mode;
  }
  static PyObject* at(PyObject*, PyObject* index) {
    const Py_ssize_t i = PyLong_AsSsize_t(index);
    if (i == -1 && PyErr_Occurred()) return nullptr;
    if (i < 0 || i >= static_cast<Py_ssize_t>(modes.size()))
      return PyErr_Format(PyExc_IndexError, "no %s at %zd", Kind::name, i);
    return Py_NewRef(modes[static_cast<size_t>(i)]);
  }
  static PyObject* size(PyObject*, PyObject*) { return PyLong_FromSize_t(modes.size()); }

 private:
  static inline thread_local std::vector<PyObject*> modes;  // owned, the innermost last
};

}  // namespace mica::python
