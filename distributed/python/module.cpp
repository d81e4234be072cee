// The extension mica._distributed. It handles addresses and sizes; tensors stay on the Python side.
#include "distributed/process.h"
#include "distributed/python/plain_tensor.h"

namespace mica::distributed::python {
namespace {

PyObject* host(PyObject*, PyObject*) { return PyUnicode_FromString(host_identity().c_str()); }

PyMethodDef functions[] = {
    {"set_errors", set_errors, METH_VARARGS, nullptr},   {"set_own_folder", set_own_folder, METH_O, nullptr},
    {"set_plain_type", set_plain_type, METH_O, nullptr}, {"open_gloo", open_gloo, METH_VARARGS, nullptr},
    {"host_identity", host, METH_NOARGS, nullptr},       {}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_distributed", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace mica::distributed::python

PyMODINIT_FUNC PyInit__distributed() {
  using namespace mica::distributed::python;
  PyObject* module = PyModule_Create(&definition);
  if (!module) return nullptr;
  struct {
    const char* name;
    PyTypeObject* type;
  } types[] = {{"StoreServer", &StoreServerType},
               {"StoreClient", &StoreClientType},
               {"Group", &GroupType},
               {"Work", &WorkType},
               {"Mpi", &MpiType}};
  for (auto& each : types) {
    if (PyType_Ready(each.type) != 0 ||
        PyModule_AddObjectRef(module, each.name, reinterpret_cast<PyObject*>(each.type)) != 0) {
      Py_DECREF(module);
      return nullptr;
    }
  }
  return module;
}
