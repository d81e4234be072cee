// libmica_gloo.so, opened when ranks of a group are on several hosts.
#include <dlfcn.h>

#include "distributed/gloo/gloo_options.h"
#include "distributed/python/bindings.h"

namespace mica::distributed::python {
namespace {

// Takes the text of Python's error and clears it.
std::string take_error() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* text = value ? PyObject_Str(value) : nullptr;
  const char* words = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string result = words ? words : "an error of the store";
  PyErr_Clear();
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return result;
}

class Locked {
 public:
  Locked() : state_(PyGILState_Ensure()) {}
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

}  // namespace

// open_gloo(path, name, rank, size, address, interface, timeout, silence, store): a Group.
PyObject* open_gloo(PyObject*, PyObject* args) {
  const char *path, *name, *address, *interface;
  GlooOptions options;
  PyObject* store;
  if (!PyArg_ParseTuple(args, "ssiissddO", &path, &name, &options.rank, &options.size, &address, &interface,
                        &options.timeout, &options.silence, &store)) {
    return nullptr;
  }
  options.name = name;
  options.address = address;
  options.interface = interface;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return PyErr_Format(PyExc_ImportError, "%s", dlerror());
  auto* make = reinterpret_cast<GlooFactory>(dlsym(library, "mica_gloo_group"));
  if (!make) return PyErr_Format(PyExc_ImportError, "%s has no function mica_gloo_group", path);
  MeetingPlace place;
  place.set = [store](const std::string& key, const std::string& value) {
    Locked lock;
    PyObject* done =
        PyObject_CallMethod(store, "set", "sy#", key.c_str(), value.data(), static_cast<Py_ssize_t>(value.size()));
    if (!done) throw StoreError(take_error());
    Py_DECREF(done);
  };
  place.get = [store](const std::string& key) {
    Locked lock;
    PyObject* value = PyObject_CallMethod(store, "get", "s", key.c_str());
    if (!value) throw StoreError(take_error());
    char* bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(value, &bytes, &size) != 0) throw StoreError(take_error());
    std::string result(bytes, static_cast<size_t>(size));
    Py_DECREF(value);
    return result;
  };
  std::shared_ptr<Backend> backend;
  if (!unlocked([&] { backend.reset(make(options, place)); })) return nullptr;
  return group_of_backend(std::move(backend));
}

}  // namespace mica::distributed::python
