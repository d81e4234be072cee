#include "exceptions.h"

#include <cxxabi.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "mica/backend/linalg_library.h"
#include "mica/core/handled_error.h"
#include "mica/core/linalg_error.h"
#include "mica/core/missing_device.h"
#include "mica/error.h"
#include "mica/warning.h"

namespace mica::python {

PyObject* out_of_memory_error = nullptr;

static PyObject* exception_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Index:
      return PyExc_IndexError;
    case ErrorKind::Type:
      return PyExc_TypeError;
    case ErrorKind::Value:
      return PyExc_ValueError;
    case ErrorKind::NotImplemented:
      return PyExc_NotImplementedError;
    case ErrorKind::OutOfMemory:
      return out_of_memory_error;
    case ErrorKind::Attribute:
      return PyExc_AttributeError;
    case ErrorKind::Buffer:
      return PyExc_BufferError;
    case ErrorKind::Runtime:
      break;
  }
  return PyExc_RuntimeError;
}

// The last message of the engine on this thread, by which its exceptions are told from others.
static thread_local std::string last_engine_error;

bool is_engine_error(PyObject* exception) {
  if (last_engine_error.empty() || !PyExceptionInstance_Check(exception)) return false;
  Owned args(PyObject_GetAttrString(exception, "args"));
  if (!args || !PyTuple_Check(args.get()) || PyTuple_GET_SIZE(args.get()) == 0) {
    PyErr_Clear();
    return false;
  }
  PyObject* first = PyTuple_GET_ITEM(args.get(), 0);
  const char* text = PyUnicode_Check(first) ? PyUnicode_AsUTF8(first) : nullptr;
  if (!text) PyErr_Clear();
  return text && std::string_view(text).substr(0, last_engine_error.size()) == last_engine_error;
}

struct PythonError::Held {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  ~Held() {
    if (!Py_IsInitialized()) return;
    Locked locked;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  }
};

PythonError::PythonError() : held_(std::make_shared<Held>()) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "an operation failed without saying why");
  PyErr_Fetch(&held_->type, &held_->value, &held_->traceback);
  PyErr_NormalizeException(&held_->type, &held_->value, &held_->traceback);
}

void PythonError::add_note(std::string_view note) {
  Locked locked;
  Owned text(PyUnicode_DecodeUTF8(note.data(), static_cast<Py_ssize_t>(note.size()), "replace"));
  Owned name(PyUnicode_InternFromString("add_note"));
  if (text && name && held_->value) Owned ignored(PyObject_CallMethodOneArg(held_->value, name.get(), text.get()));
  PyErr_Clear();
}

void PythonError::restore() const {
  PyErr_Restore(Py_XNewRef(held_->type), Py_XNewRef(held_->value), Py_XNewRef(held_->traceback));
}

// mica.linalg.name, a new reference. Imports the module if it is not imported.
static PyObject* of_linalg(const char* name) {
  Owned module(PyImport_ImportModule("mica.linalg"));
  return module ? PyObject_GetAttrString(module.get(), name) : nullptr;
}

static void raise_linalg_error(const char* message) {
  Owned type(of_linalg("LinAlgError"));
  if (type) PyErr_SetString(type.get(), message);
}

static std::string lapack_path() {
  Locked locked;
  Owned finder(of_linalg("_lapack_path"));
  Owned path(finder ? PyObject_CallNoArgs(finder.get()) : nullptr);
  const char* text = path ? PyUnicode_AsUTF8(path.get()) : nullptr;
  if (!text) PyErr_Clear();  // the library is then looked for elsewhere
  return text ? text : "";
}

bool raise_error(const std::exception& error) {
  if (const auto* python = dynamic_cast<const PythonError*>(&error)) {
    python->restore();
  } else if (dynamic_cast<const LinAlgError*>(&error)) {
    raise_linalg_error(error.what());
  } else if (const auto* engine = dynamic_cast<const Error*>(&error)) {
    last_engine_error = error.what();
    const bool missing = dynamic_cast<const MissingDevice*>(&error);
    PyErr_SetString(missing ? PyExc_AssertionError : exception_type(engine->kind()), error.what());
  } else {
    return false;
  }
  return true;
}

// A forced unwind has no object behind its reference, which UndefinedBehaviorSanitizer would report.
[[gnu::no_sanitize_undefined]] PyObject* raise_current_exception() {
  try {
    throw;
  } catch (const abi::__forced_unwind&) {
    throw;  // from pthread_exit, by which the interpreter ends daemon threads when it has ended itself
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    if (!raise_error(e)) PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an unknown C++ exception was thrown");
  }
  return nullptr;
}

// A warning may be raised as an exception (python -W error). It then leaves the operation as a PythonError.
static void warn_in_python(std::string_view message) {
  Locked locked;
  Owned text(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  if (text && PyErr_WarnEx(PyExc_UserWarning, PyUnicode_AsUTF8(text.get()), 1) == 0) return;
  if (!handles_error()) throw PythonError();
  // The warning concerns an error that is on its way: that error is raised, and this one is only printed.
  PyErr_Print();
}

bool install_warning_handler() {
  set_warning_handler(warn_in_python);
  set_lapack_path_finder(lapack_path);
  return true;
}

bool add_exceptions(PyObject* module) {
  out_of_memory_error = PyErr_NewExceptionWithDoc("torch.OutOfMemoryError",
                                                  "Raised when a device has not enough memory left for an allocation.",
                                                  PyExc_RuntimeError, nullptr);
  return out_of_memory_error && PyModule_AddObjectRef(module, "OutOfMemoryError", out_of_memory_error) == 0;
}

}  // namespace mica::python
