// Owned references to Python objects, and the small vocabulary that every file of the extension shares.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include "mica/autograd.h"
#include "mica/observe.h"

namespace mica::python {

void settle_places();  // tells the engine which line allocated the memory that was allocated meanwhile (places.cpp)

// A strong reference that is dropped at the end of its scope. Construct it from a new reference.
class Owned {
 public:
  Owned() = default;
  explicit Owned(PyObject* new_reference) : object_(new_reference) {}
  static Owned borrow(PyObject* object) { return Owned(Py_XNewRef(object)); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// A Python exception on its way through C++. Thrown after an API call has failed: it takes the exception that is set,
// so that it can cross threads, and sets it again when it reaches Python.
class PythonError : public std::exception, public Notable {
 public:
  PythonError();
  const char* what() const noexcept override { return "a Python exception"; }
  void add_note(std::string_view note) override;
  void restore() const;

 private:
  struct Held;
  std::shared_ptr<Held> held_;
};

// The result of an API call that must not be null.
inline PyObject* checked(PyObject* object) {
  if (!object) throw PythonError();
  return object;
}

// Turns the C++ exception in flight into a Python exception; returns null. To be called in a catch block.
PyObject* raise_current_exception();
inline int raise_current_exception_int() {
  raise_current_exception();
  return -1;
}

// Releases the interpreter lock for its scope, when `worthwhile`.
class Unlocked {
 public:
  explicit Unlocked(bool worthwhile) : state_(worthwhile ? PyEval_SaveThread() : nullptr) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  // When the interpreter has ended, it makes threads that want its lock unwind and exit, through here too.
  ~Unlocked() noexcept(false) { lock(); }
  void lock() {
    if (!state_) return;
    PyEval_RestoreThread(std::exchange(state_, nullptr));
    if (inspect::places_pending) [[unlikely]]
      settle_places();
  }

 private:
  PyThreadState* state_;
};

// Holds the interpreter lock for its scope, on any thread. It stands before every Owned of the scope, because objects
// must be released under the lock.
class Locked {
 public:
  Locked() : state_(PyGILState_Ensure()) {}
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

// Work on this many elements takes longer than handing over the interpreter lock.
inline constexpr int64_t kUnlockElements = 32768;

// A getter, setter or method of a C type as the API's tables want it.
template <class F>
PyCFunction as_cfunction(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

// How methods that take keywords are called.
inline constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;

}  // namespace mica::python
