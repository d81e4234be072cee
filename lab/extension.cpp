// The module mica._lab: starts and stops the Lab's server.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>

#include "site.h"

namespace mica::lab {

namespace {

struct ServerObject {
  PyObject_HEAD Site* site;
};

// Runs `work` without the interpreter lock; a C++ exception becomes a RuntimeError.
template <class Work>
bool unlocked(Work work) {
  std::string problem;
  Py_BEGIN_ALLOW_THREADS;
  try {
    work();
  } catch (const std::exception& e) {
    problem = e.what();
    if (problem.empty()) problem = "the server failed";
  }
  Py_END_ALLOW_THREADS;
  if (problem.empty()) return true;
  PyErr_SetString(PyExc_RuntimeError, problem.c_str());
  return false;
}

void server_dealloc(PyObject* self) {
  Site* site = std::exchange(reinterpret_cast<ServerObject*>(self)->site, nullptr);
  if (site) unlocked([site] { delete site; });
  PyErr_Clear();
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* server_stop(PyObject* self, PyObject*) {
  Site* site = reinterpret_cast<ServerObject*>(self)->site;
  if (!unlocked([site] { site->stop(); })) return nullptr;
  Py_RETURN_NONE;
}
PyObject* server_url(PyObject* self, void*) {
  return PyUnicode_FromString(reinterpret_cast<ServerObject*>(self)->site->url().c_str());
}
PyObject* server_port(PyObject* self, void*) {
  return PyLong_FromLong(reinterpret_cast<ServerObject*>(self)->site->port());
}

PyTypeObject* server_type;

PyObject* serve(PyObject*, PyObject* args) {
  const char *folder, *sources, *token;
  int port;
  if (!PyArg_ParseTuple(args, "sssi:serve", &folder, &sources, &token, &port)) return nullptr;
  std::unique_ptr<Site> site;
  if (!unlocked([&] { site = std::make_unique<Site>(folder, sources, token, port); })) return nullptr;
  auto* server = PyObject_New(ServerObject, server_type);
  if (!server) return nullptr;
  server->site = site.release();
  return reinterpret_cast<PyObject*>(server);
}

PyObject* publish(PyObject*, PyObject* report) {
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(report, &size);
  if (!text) return nullptr;
  Site::publish(std::string(text, static_cast<size_t>(size)));
  Py_RETURN_NONE;
}

PyObject* set_interpreter(PyObject*, PyObject* args) {
  const char *program, *package;
  if (!PyArg_ParseTuple(args, "ss:set_interpreter", &program, &package)) return nullptr;
  Site::set_interpreter(program, package);
  Py_RETURN_NONE;
}

// The answer of an instrument without a server between: ask(name, question), both JSON.
PyObject* ask(PyObject*, PyObject* args) {
  const char *name, *question;
  if (!PyArg_ParseTuple(args, "ss:ask", &name, &question)) return nullptr;
  const auto found = instruments().find(name);
  if (found == instruments().end()) return PyErr_Format(PyExc_KeyError, "no instrument '%s'", name);
  std::string answer;
  if (!unlocked([&] { answer = found->second(Json::parse(question)).dump(); })) return nullptr;
  return PyUnicode_FromStringAndSize(answer.data(), static_cast<Py_ssize_t>(answer.size()));
}

int fill_module(PyObject* module) {
  static PyMethodDef methods[] = {{"stop", server_stop, METH_NOARGS, "Ends every connection."}, {}};
  static PyGetSetDef attributes[] = {{"url", server_url, nullptr, "Where the page is.", nullptr},
                                     {"port", server_port, nullptr, nullptr, nullptr},
                                     {}};
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(server_dealloc)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, attributes},
                                {0, nullptr}};
  static PyType_Spec spec = {"mica._lab.Server", sizeof(ServerObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  server_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return server_type ? PyModule_AddObjectRef(module, "Server", reinterpret_cast<PyObject*>(server_type)) : -1;
}

}  // namespace

}  // namespace mica::lab

PyMODINIT_FUNC PyInit__lab() {
  using namespace mica::lab;
  static PyMethodDef functions[] = {
      {"serve", serve, METH_VARARGS, "serve(folder, sources, token, port): the page's server, running."},
      {"publish", publish, METH_O, "Sets what a running program shows of itself, as JSON."},
      {"set_interpreter", set_interpreter, METH_VARARGS, "Which Python runs programs, and where it finds the package."},
      {"ask", ask, METH_VARARGS, "ask(instrument, question): the answer of an instrument; both are JSON."},
      {}};
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "mica._lab", "The Lab's server.", -1, functions, nullptr, nullptr, nullptr, nullptr};
  PyObject* module = PyModule_Create(&definition);
  if (module && fill_module(module) < 0) Py_CLEAR(module);
  return module;
}
