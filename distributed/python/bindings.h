// Functions that the sources of the extension mica._distributed share.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/call.h"
#include "distributed/process.h"

namespace mica::distributed {
class SharedGroup;
}

namespace mica::distributed::python {

// While an object of this class lives, the interpreter lock is not held.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() { PyEval_RestoreThread(state_); }
  Unlocked(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

// Deletes what a Python object owns, in the process that made it. A child of fork has none of its threads, and its
// locks and sockets are the parent's: there the object is left as it is, until the child ends.
template <typename T>
void delete_of_process(T* owned, uint64_t forks) {
  if (forks == fork_count()) delete owned;
}

// Lets Python's signal handlers run, and throws Interrupted where one has raised. For calls that wait unlocked.
std::function<void()> interrupt();

// Turns the exception that is being handled into Python's error. Always returns null.
PyObject* raise_current();

// The line of the program that is running: the first one outside of the package's own folders.
std::string current_place();

bool texts_of(PyObject* sequence, std::vector<std::string>& out);
bool text_of(PyObject* object, std::string& out);  // str or bytes
bool ranks_of(PyObject* sequence, std::vector<int>& ranks);

extern PyTypeObject StoreServerType, StoreClientType, GroupType, WorkType, MpiType;
// A Group on any backend.
PyObject* group_of_backend(std::shared_ptr<Backend> backend);
// The group in shared memory of a Group object; null for other groups, and for other objects.
std::shared_ptr<SharedGroup> shared_group_of(PyObject* object);
PyObject* open_gloo(PyObject* module, PyObject* args);
PyObject* set_errors(PyObject* module, PyObject* args);
PyObject* set_own_folder(PyObject* module, PyObject* folder);

// Runs `body` unlocked and turns its errors into Python's; false after an error.
template <typename Body>
bool unlocked(Body body) {
  try {
    Unlocked guard;
    body();
    return true;
  } catch (...) {
    raise_current();
    return false;
  }
}

}  // namespace mica::distributed::python
